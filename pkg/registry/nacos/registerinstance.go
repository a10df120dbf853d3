package nacos

import (
	"context"
	"crypto/md5" //nolint:gosec // Nacos identifies the content of a configuration by its MD5
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Registering an instance takes these writes, in this order:
//
//	configuration <application> in the group <revision>   the metadata
//	configuration <interface> in the group mapping        contains the application
//	service <application>                                 the instance
//
// Nacos 2.2 and later write a mapping only if it has not changed since it was read. Older versions
// ignore that condition, so concurrent writers may overwrite each other. Therefore writeConfigs,
// which reconcile calls after each heartbeat, compares the written configurations with the server,
// soon after the write and then periodically.

const (
	// revisionRetention is how long metadata is retained after an instance of this process has
	// changed to another revision or was unregistered: consumers may still be about to read it.
	revisionRetention = time.Minute
	// maxRetiredRevisions bounds the revisions that are retained.
	maxRetiredRevisions = 8
	// maxAttempts bounds the attempts to change a mapping during concurrent changes.
	maxAttempts = 5
	// minCompareInterval is the first interval between comparisons, and maxCompareInterval the
	// maximum. The first heartbeat after an interval makes the comparison.
	minCompareInterval = 2 * time.Second
	maxCompareInterval = time.Minute
	// maxMetadataBytes is the maximum size of a revision's metadata. It must fit in a request to
	// Nacos.
	maxMetadataBytes = 2 << 20
)

// errInvalidName is the error for names that Nacos does not accept.
var errInvalidName = errors.New("invalid Nacos name: only letters, digits, and _-.: are allowed")

// errConflict is a responseError, because the server is reachable.
var errConflict = &responseError{errors.New("too many concurrent changes by other clients")}

// instanceState is the registration of an instance. RegisterInstance replaces it when the
// registration changes.
type instanceState struct {
	*registry.InstanceRegistration

	configs *configSums
}

// configSums holds the checksums of an instance's configurations. The worker that reconciles the
// instance owns it.
type configSums struct {
	sums       map[configKey]string // MD5 of the texts that the server has, as far as is known
	comparedAt time.Time            // when the sums were last compared, or first written
	interval   time.Duration        // interval to the next comparison
}

// metadata returns a copy of the instance's metadata.
func (s *instanceState) metadata() map[string]string { return maps.Clone(s.Instance.Metadata) }

// RegisterInstance registers an instance: see registry.InstanceRegistry. It rejects an instance
// that Nacos cannot store. An interface that is not a valid name in Nacos has no mapping;
// RegisterInstance then returns an UnmappedError.
func (r *Registry) RegisterInstance(ctx context.Context, reg *registry.InstanceRegistration) error {
	if err := checkRegistration(reg); err != nil {
		return err
	}
	text, err := json.Marshal(reg.Instance.Metadata)
	if err != nil {
		return err
	}
	key := keyOf(&reg.Instance)
	r.mu.Lock()
	e := r.entries[key]
	if e == nil {
		e = &entry{key: key, service: escapeServiceName(reg.Instance.Application), host: reg.Instance.Host, port: reg.Instance.Port}
		r.entries[key] = e
	}
	if e.instance == nil {
		e.instance = &instanceState{reg, &configSums{sums: map[configKey]string{}, interval: minCompareInterval}}
	} else if e.desiredText != string(text) {
		if e.desiredText != "" && e.instance.Revision != reg.Revision {
			r.retireRevision(e.instance.InstanceRegistration)
		}
		e.instance = &instanceState{reg, e.instance.configs}
	}
	result := e.setDesired(string(text))
	r.mu.Unlock()
	if err := r.await(ctx, result, reg.Instance.Application); err != nil {
		return err
	}
	return unmappedError(reg)
}

// unmappedError returns an UnmappedError for the interfaces without a mapping, or nil.
func unmappedError(reg *registry.InstanceRegistration) error {
	var names []string
	for _, name := range reg.Interfaces {
		if _, ok := mappingKey(name); !ok {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return &registry.UnmappedError{Application: reg.Instance.Application, Interfaces: names, Err: errInvalidName}
}

// UnregisterInstance reverts RegisterInstance: see registry.InstanceRegistry.
func (r *Registry) UnregisterInstance(ctx context.Context, i registry.Instance) error {
	r.mu.Lock()
	e := r.entries[keyOf(&i)]
	if e == nil {
		r.mu.Unlock()
		return nil
	}
	if e.desiredText != "" {
		r.retireRevision(e.instance.InstanceRegistration)
	}
	result := e.setDesired("")
	r.mu.Unlock()
	return r.await(ctx, result, i.Application)
}

// keyOf returns the key of an instance's entry. The slash distinguishes it from the key of a URL,
// because service names contain none.
func keyOf(i *registry.Instance) string { return "/" + i.Application + " " + i.Address() }

func checkRegistration(reg *registry.InstanceRegistration) error {
	if err := reg.Check(); err != nil {
		return err
	}
	if d := revisionOf(reg).metadata(); !d.isValid() {
		return fmt.Errorf("revision %q of %q: %w", reg.Revision, reg.Instance.Application, errInvalidName)
	}
	if n := len(reg.MetadataInfo); n > maxMetadataBytes {
		return fmt.Errorf("the metadata of %s has %d bytes; the maximum is %d", reg.Instance.Application, n, maxMetadataBytes)
	}
	return nil
}

// writeConfigs writes the configurations of an instance that are missing or outdated.
func (r *Registry) writeConfigs(ctx context.Context, inst *instanceState) error {
	configs := inst.configs
	now := time.Now()
	switch {
	case configs.comparedAt.IsZero():
		configs.comparedAt = now
	case now.Sub(configs.comparedAt) >= configs.interval:
		configs.comparedAt, configs.interval = now, min(max(2*configs.interval, minCompareInterval), maxCompareInterval)
		if err := r.dropChangedSums(ctx, configs); err != nil {
			return err
		}
	}
	metadata := revisionOf(inst.InstanceRegistration).metadata()
	// removeRevision may delete the metadata of previous revisions.
	maps.DeleteFunc(configs.sums, func(d configKey, _ string) bool {
		return d.group != mappingGroup && d != metadata
	})
	missing := []configKey{}
	for _, name := range inst.Interfaces {
		if d, ok := mappingKey(name); ok && configs.sums[d] == "" {
			missing = append(missing, d)
		}
	}
	if configs.sums[metadata] == "" {
		if _, err := r.write(ctx, metadata, string(inst.MetadataInfo), ""); err != nil {
			return fmt.Errorf("writing the metadata of revision %s: %w", inst.Revision, err)
		}
		configs.sums[metadata] = md5Sum(string(inst.MetadataInfo))
	}
	return r.addToMappings(ctx, configs, missing, inst.Instance.Application)
}

// dropChangedSums drops the sums of configurations that differ on the server.
func (r *Registry) dropChangedSums(ctx context.Context, configs *configSums) error {
	for keys := range slices.Chunk(slices.Collect(maps.Keys(configs.sums)), configsPerQuery) {
		var query []byte
		for _, d := range keys {
			query = appendConfigQuery(query, d, configs.sums[d], r.location.namespace)
		}
		changed, err := r.changedConfigs(ctx, query)
		if err != nil {
			return err
		}
		for _, d := range changed {
			delete(configs.sums, d)
		}
	}
	return nil
}

// addToMappings adds an application to mappings, several concurrently.
func (r *Registry) addToMappings(ctx context.Context, configs *configSums, mappings []configKey, application string) error {
	var mu sync.Mutex
	var firstErr error
	err := forEach(ctx, mappings, func(ctx context.Context, d configKey) error {
		sum, err := r.addToMapping(ctx, d, application)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			configs.sums[d] = sum
			return nil
		}
		err = fmt.Errorf("updating the mapping of %s: %w", d.id, err)
		if firstErr == nil {
			firstErr = err
		}
		return err
	})
	if err != nil {
		return err
	}
	return firstErr
}

// addToMapping adds an application to a mapping, and returns the MD5 of the mapping.
func (r *Registry) addToMapping(ctx context.Context, mapping configKey, application string) (sum string, err error) {
	for range maxAttempts {
		text, exists, err := r.readConfig(ctx, mapping)
		if err != nil {
			return "", err
		}
		updated, changed := registry.WithApplication(string(text), application)
		if !changed {
			return md5Sum(updated), nil
		}
		oldSum := "0" // Dubbo's value for a missing configuration
		if exists && len(text) > 0 {
			oldSum = md5Sum(string(text))
		}
		written, err := r.write(ctx, mapping, updated, oldSum)
		if err != nil {
			return "", err
		}
		if written {
			return md5Sum(updated), nil
		}
	}
	return "", errConflict
}

// write writes a configuration. If oldSum is not "", it is the MD5 of the text to replace, or "0"
// for a missing configuration, and write returns false if the server has another text.
func (r *Registry) write(ctx context.Context, d configKey, text, oldSum string) (written bool, err error) {
	form := r.configForm(d)
	form.Set("content", text)
	req := request{method: http.MethodPost, path: configPath, form: form}
	if oldSum != "" {
		req.header = http.Header{"Casmd5": {oldSum}}
	}
	body, err := r.client.call(ctx, req)
	if err != nil {
		var statusErr *statusError
		if oldSum != "" && errors.As(err, &statusErr) && statusErr.status == http.StatusInternalServerError {
			return false, nil // Nacos 2.2 and later report a conflict like this
		}
		return false, err
	}
	return string(body) != "false", nil
}

// md5Sum returns the MD5 by which Nacos identifies a text.
func md5Sum(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// retireRevision schedules the removal of a revision's metadata after revisionRetention. If more
// than maxRetiredRevisions revisions are retained, the removal of the oldest one becomes due. The
// caller holds mu.
func (r *Registry) retireRevision(reg *registry.InstanceRegistration) {
	r.retiredCount++
	key := "past " + strconv.FormatUint(r.retiredCount, 10)
	rev := revisionOf(reg)
	r.entries[key] = &entry{key: key, retiredRevision: &rev, dueAt: time.Now().Add(revisionRetention)}
	now, count, oldest := time.Now(), 0, r.entries[key]
	for _, e := range r.entries {
		if e.retiredRevision == nil || !e.dueAt.After(now) { // not a revision, or one that is due
			continue
		}
		if count++; e.dueAt.Before(oldest.dueAt) {
			oldest = e
		}
	}
	if count > maxRetiredRevisions {
		oldest.dueAt = now
	}
}

// removeRevision removes the metadata of a revision that no instance has, and its entry. It does
// not retry a failed removal: remaining metadata does no harm.
func (r *Registry) removeRevision(ctx context.Context, e *entry) {
	inUse, err := r.isRevisionInUse(ctx, *e.retiredRevision)
	if err == nil && !inUse {
		_, err = r.client.call(ctx, request{method: http.MethodDelete, path: configPath, form: r.configForm(e.retiredRevision.metadata())})
	}
	if err != nil && ctx.Err() == nil {
		r.log.Warn("cannot remove unused metadata from Nacos", "application", e.retiredRevision.application, "revision", e.retiredRevision.name, "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, e.key)
}

// isRevisionInUse reports whether an instance has a revision.
func (r *Registry) isRevisionInUse(ctx context.Context, rev revision) (bool, error) {
	r.mu.Lock()
	for _, e := range r.entries {
		if e.instance != nil && e.desiredText != "" && revisionOf(e.instance.InstanceRegistration) == rev {
			r.mu.Unlock()
			return true, nil
		}
	}
	r.mu.Unlock()
	form := r.namespaceForm()
	form.Set("serviceName", escapeServiceName(rev.application))
	form.Set("healthyOnly", "false")
	body, err := r.client.call(ctx, request{method: http.MethodGet, path: instancePath + "/list", form: form})
	if err != nil {
		return false, err
	}
	raw, err := rawHosts(body)
	if err != nil {
		return false, err
	}
	instances, err := parseHosts(raw)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(instances, func(i instance) bool { return slices.Contains(slices.Collect(maps.Values(i.Metadata)), rev.name) }), nil
}

const configPath = "/v1/cs/configs"

// configForm returns the parameters that identify a configuration.
func (r *Registry) configForm(d configKey) url.Values {
	form := url.Values{"dataId": {d.id}, "group": {d.group}}
	if r.location.namespace != "" {
		form.Set("tenant", r.location.namespace)
	}
	return form
}
