package nacos

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weft-proxy/weft/pkg/registry"
)

// Metadata keys of instances in addition to the parameters of the URL.
const (
	metaProtocol = "protocol"
	metaPath     = "path"
	// preservedPrefix is the prefix of the keys that Nacos itself evaluates.
	preservedPrefix    = "preserved."
	preservedHeartbeat = preservedPrefix + "heart.beat.interval" // ms, like the next two
	preservedTimeout   = preservedPrefix + "heart.beat.timeout"
	preservedDelete    = preservedPrefix + "ip.delete.timeout"
)

// URL parameters that Nacos can change, and the default weight in Dubbo.
const (
	parameterWeight  = "weight"
	parameterEnabled = "enabled"
	defaultWeight    = 100
)

// metadataOf returns the metadata with which a URL is registered, as JSON. A session timeout of 0
// selects the default of the server.
func metadataOf(u registry.URL, session time.Duration) string {
	metadata := u.Parameters.Map()
	metadata[metaProtocol], metadata[metaPath] = u.Protocol, u.Path
	if metadata[registry.ParameterCategory] == "" {
		metadata[registry.ParameterCategory] = u.Category()
	}
	return encodeMetadata(metadata, session)
}

// encodeMetadata returns the metadata of an instance with the session timeouts, as JSON. It
// modifies metadata.
func encodeMetadata(metadata map[string]string, session time.Duration) string {
	if session != 0 {
		ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
		metadata[preservedHeartbeat], metadata[preservedTimeout], metadata[preservedDelete] = ms(session/heartbeatsPerSession), ms(session), ms(2*session)
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		panic(fmt.Sprintf("nacos: encoding metadata: %v", err))
	}
	return string(text)
}

// instance is an instance of a service in Nacos's JSON.
type instance struct {
	ID       string            `json:"instanceId"`
	IP       string            `json:"ip"`
	Port     int64             `json:"port"`
	Weight   *float64          `json:"weight"`
	Healthy  *bool             `json:"healthy"`
	Valid    *bool             `json:"valid"` // Healthy in Nacos before 0.9
	Enabled  *bool             `json:"enabled"`
	Metadata map[string]string `json:"metadata"`
}

// rawHosts returns the instances of a response to "instance/list", undecoded.
func rawHosts(body []byte) (json.RawMessage, error) {
	var resp struct {
		Hosts json.RawMessage `json:"hosts"`
	}
	if err := json.Unmarshal(body, &resp); err != nil {
		return nil, fmt.Errorf("decoding a list of instances: %w", err)
	}
	if len(resp.Hosts) == 0 || resp.Hosts[0] != '[' {
		return nil, errors.New(`the list of instances has no array "hosts"`)
	}
	return resp.Hosts, nil
}

// parseHosts decodes instances. It skips invalid instances, and returns the error of the first
// invalid instance.
func parseHosts(hosts json.RawMessage) (instances []instance, err error) {
	var items []json.RawMessage
	if err := json.Unmarshal(hosts, &items); err != nil {
		return nil, fmt.Errorf("decoding hosts: %w", err)
	}
	for _, raw := range items {
		var i instance
		itemErr := json.Unmarshal(raw, &i)
		switch {
		case itemErr != nil:
		case i.IP == "":
			itemErr = errors.New("it has no IP address")
		case i.Port < 0 || i.Port > math.MaxUint16:
			itemErr = fmt.Errorf("%s: %d is not a valid port", i.IP, i.Port)
		case i.Weight != nil && *i.Weight < 0:
			itemErr = fmt.Errorf("%s: %v is not a valid weight", i.IP, *i.Weight)
		}
		if itemErr == nil {
			instances = append(instances, i)
		} else if err == nil {
			err = fmt.Errorf("invalid instance: %w", itemErr)
		}
	}
	return instances, err
}

func trueOrUnset(b *bool) bool { return b == nil || *b }

// isHealthy reports whether Nacos considers the instance healthy.
func (i *instance) isHealthy() bool { return trueOrUnset(i.Healthy) && trueOrUnset(i.Valid) }

// weight returns the instance's weight in Nacos; the default is 1.
func (i *instance) weight() float64 {
	if i.Weight == nil {
		return 1
	}
	return *i.Weight
}

// url returns the registered URL. Its parameters reflect changes made in Nacos: whether the
// instance is enabled, and its weight. It returns false if Dubbo did not register the instance.
func (i *instance) url() (registry.URL, bool) {
	u := registry.URL{Protocol: i.Metadata[metaProtocol], Host: i.IP, Port: uint16(i.Port), Path: i.Metadata[metaPath]} //nolint:gosec // checked
	if u.Protocol == "" {
		return registry.URL{}, false
	}
	parameters := make(map[string]string, len(i.Metadata))
	for key, value := range i.Metadata {
		if key != metaProtocol && key != metaPath && !strings.HasPrefix(key, preservedPrefix) {
			parameters[key] = value
		}
	}
	if parameters[registry.ParameterCategory] == registry.Providers {
		delete(parameters, registry.ParameterCategory) // Dubbo adds it
	}
	if !trueOrUnset(i.Enabled) {
		parameters[parameterEnabled] = "false"
	}
	if w := i.weight(); w != 1 {
		weight, err := strconv.ParseFloat(parameters[parameterWeight], 64)
		if err != nil {
			weight = defaultWeight
		}
		parameters[parameterWeight] = strconv.FormatInt(int64(math.Round(min(weight*w, math.MaxInt32))), 10)
	}
	u.Parameters = registry.ParametersOf(parameters)
	return u, true
}

// toInstance returns i as an instance of an application.
func (i *instance) toInstance(application string) registry.Instance {
	return registry.Instance{
		Application: application, ID: i.ID, Host: i.IP, Port: uint16(i.Port), //nolint:gosec // checked
		Weight: i.weight(), Healthy: i.isHealthy(), Enabled: trueOrUnset(i.Enabled), Metadata: i.Metadata,
	}
}

// parseNames decodes a response to "service/list": a page of names, and the total number.
func parseNames(body []byte) (names []string, count int, err error) {
	var resp struct {
		Count *int     `json:"count"`
		Names []string `json:"doms"`
	}
	if err := json.Unmarshal(body, &resp); err != nil {
		return nil, 0, fmt.Errorf("decoding a list of services: %w", err)
	}
	if resp.Count == nil {
		return nil, 0, errors.New(`the list of services has no number "count"`)
	}
	return resp.Names, *resp.Count, nil
}

// parseHeartbeat decodes the response to a heartbeat, and reports whether the instance is
// registered at the server.
func parseHeartbeat(body []byte) (registered bool, err error) {
	const noSuchInstance = 20404
	var resp struct {
		Code int `json:"code"`
	}
	if err := json.Unmarshal(body, &resp); err != nil {
		return false, fmt.Errorf("decoding a heartbeat response: %w", err)
	}
	return resp.Code != noSuchInstance, nil
}

// parseToken decodes a response to a login: the token and its lifetime.
func parseToken(body []byte) (token string, lifetime time.Duration, err error) {
	var resp struct {
		Token string `json:"accessToken"`
		TTL   int64  `json:"tokenTtl"` // seconds
	}
	if err := json.Unmarshal(body, &resp); err != nil {
		return "", 0, errors.New("the login response is not valid JSON") // err may contain the token
	}
	if resp.Token == "" || strings.ContainsFunc(resp.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", 0, errors.New("the login response has no valid token")
	}
	const maxSeconds = int64(24 * time.Hour / time.Second)
	return resp.Token, time.Duration(min(max(resp.TTL, 1), maxSeconds)) * time.Second, nil
}

// The separators in requests and responses about several configurations.
const (
	fieldSeparator  = "\x02"
	recordSeparator = "\x01"
)

// appendConfigQuery appends a query to dst. It asks whether the text of a configuration has another
// MD5 than sum or, if sum is "", whether the configuration exists.
func appendConfigQuery(dst []byte, d configKey, sum, namespace string) []byte {
	fields := []string{d.id, d.group, sum}
	if namespace != "" {
		fields = append(fields, namespace)
	}
	return append(dst, strings.Join(fields, fieldSeparator)+recordSeparator...)
}

// parseChanged decodes the list of configurations that differ.
func parseChanged(body []byte) ([]configKey, error) {
	text, err := url.QueryUnescape(strings.TrimSpace(string(body)))
	if err != nil {
		return nil, fmt.Errorf("decoding a list of configurations: %w", err)
	}
	var changed []configKey
	for record := range strings.SplitSeq(text, recordSeparator) {
		if record == "" {
			continue
		}
		fields := strings.Split(record, fieldSeparator)
		if len(fields) < 2 {
			return nil, fmt.Errorf("invalid entry in a list of configurations: %.100q", record)
		}
		changed = append(changed, configKey{fields[0], fields[1]})
	}
	return changed, nil
}
