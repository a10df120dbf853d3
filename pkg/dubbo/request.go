package dubbo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/registry"
)

// Key returns the service key group/interface:version, which is the name of the cluster of a
// reference.
func (s *Service) Key() string {
	return registry.Service{Interface: s.Interface, Group: s.Group, Version: registry.PlainVersion(s.Version)}.String()
}

// memoryType is the type of registry that needs no address.
const memoryType = "memory"

// directoryPrefix is the prefix of a memoryType address that names a directory.
const directoryPrefix = "file:"

// Maximum lengths of fields, in bytes.
const (
	maxFieldLen   = 1 << 10
	maxAddressLen = 4 << 10
)

// identity identifies a publication or a subscription.
type identity struct {
	registryType, address string // of the registry
	service               registry.Service
}

// sessionKey identifies a session.
type sessionKey struct{ registryType, address, username, password string }

func (k sessionKey) String() string { return k.registryType + "://" + k.address }

// spec is a validated request.
type spec struct {
	Request // with the registry resolved

	id      identity
	session sessionKey
	mode    config.RegisterMode // of a publication
}

// operation is the purpose of a request.
type operation uint8

const (
	opPublish operation = iota
	opSubscribe
	opRemove // unpublish or unsubscribe
)

// validate validates a request. The error is a *FieldError.
func (s *settings) validate(r Request, op operation) (*spec, error) {
	for _, check := range []func(*Request, operation) error{s.validateRegistry, validateService, validateParameters, validateRegisterMode, s.validatePort} {
		if err := check(&r, op); err != nil {
			return nil, err
		}
	}
	sp := &spec{Request: r}
	sp.id = identity{r.Registry.Type, r.Registry.Address, registry.Service{
		Interface: r.Service.Interface, Group: r.Service.Group, Version: r.Service.Version,
	}}
	sp.session = sessionKey{r.Registry.Type, r.Registry.Address, r.Registry.Username, r.Registry.Password}
	configured := s.registry(sp.session.registryType, sp.session.address)
	if configured != nil && sp.session.username == "" && sp.session.password == "" {
		sp.session.username, sp.session.password = configured.Username, configured.Password // not in the state file, which contains Request
	}
	sp.mode = config.RegisterMode(r.Service.Parameters[parameterRegisterMode])
	if sp.mode == "" && configured != nil {
		sp.mode = configured.RegisterMode
	}
	sp.mode = cmp.Or(sp.mode, config.RegisterInterface)
	if u := s.providerURL(sp, time.Now()); len(u.String()) > registry.MaxURL {
		return nil, &FieldError{"service", fmt.Sprintf("its URL has %d bytes; the maximum is %d", len(u.String()), registry.MaxURL)}
	}
	return sp, nil
}

// validateRegistry resolves and validates the registry of a request.
func (s *settings) validateRegistry(r *Request, _ operation) error {
	g := &r.Registry
	g.Type, g.Address = strings.ToLower(strings.TrimSpace(g.Type)), strings.TrimSpace(g.Address)
	if g.Address == "" {
		for _, configured := range s.Config.Registries {
			if g.Type == "" || g.Type == configured.Type {
				g.Type, g.Address = configured.Type, configured.Address
				break
			}
		}
	}
	if g.Type == "" && g.Address == "" {
		g.Type = memoryType
	}
	switch {
	case g.Type == "":
		return &FieldError{"registry.type", "is missing: must be one of " + s.registryTypes()}
	case s.Registries[g.Type] == nil:
		return &FieldError{"registry.type", fmt.Sprintf("%q is not one of %s", truncate(g.Type), s.registryTypes())}
	case g.Address == "" && g.Type != memoryType:
		return &FieldError{"registry.addr", "is missing"}
	case len(g.Address) > maxAddressLen || strings.ContainsFunc(g.Address, isForbiddenRune) || strings.ContainsFunc(g.Address, unicode.IsSpace):
		return &FieldError{"registry.addr", fmt.Sprintf("%q is not a valid address", truncate(g.Address))}
	case g.Type == memoryType && strings.HasPrefix(g.Address, directoryPrefix) && s.registry(g.Type, g.Address) == nil:
		return &FieldError{"registry.addr", "a directory must be one of the registries in the configuration: clients cannot choose directories"}
	}
	for _, f := range []struct{ name, value string }{{"registry.username", g.Username}, {"registry.password", g.Password}} {
		if problem := checkCredential(f.value); problem != "" {
			return &FieldError{f.name, problem}
		}
	}
	return nil
}

// checkCredential returns why a username or password is invalid, or "".
func checkCredential(value string) string {
	switch {
	case len(value) > maxFieldLen:
		return fmt.Sprintf("has %d bytes; the maximum is %d", len(value), maxFieldLen)
	case strings.ContainsFunc(value, isForbiddenRune):
		return "contains control characters"
	}
	return ""
}

// validateService validates the fields that identify a service.
func validateService(r *Request, op operation) error {
	s := &r.Service
	s.Version = registry.PlainVersion(s.Version)
	if s.Interface == "" {
		return &FieldError{"service.interface", "is missing"}
	}
	if s.Interface == "." || s.Interface == ".." { // these names have a special meaning in paths
		return &FieldError{"service.interface", fmt.Sprintf("%q is not a valid name", s.Interface)}
	}
	allowList := op != opPublish // a consumer may accept a list, or "*" for all
	for _, f := range []struct {
		name, value string
		forbidden   string
	}{
		{"service.interface", s.Interface, "/:?&=#%,*@"},
		{"service.group", s.Group, forbiddenChars("/:?&=#%@", allowList)},
		{"service.version", s.Version, forbiddenChars("/:?&=#%@", allowList)},
		{"service.name", s.Name, "/?&=#%,*@"},
	} {
		if problem := checkName(f.value, f.forbidden); problem != "" {
			return &FieldError{f.name, problem}
		}
	}
	if strings.Contains(s.Group, ",") && slices.Contains(strings.Split(s.Group, ","), "") {
		return &FieldError{"service.group", fmt.Sprintf("%q contains an empty name", truncate(s.Group))}
	}
	if len(s.Methods) == 0 && op == opPublish {
		return &FieldError{"service.methods", "is missing"}
	}
	for i, method := range s.Methods {
		field := fmt.Sprintf("service.methods[%d]", i)
		if method == "" {
			return &FieldError{field, "is empty"}
		}
		if problem := checkName(method, "/:?&=#%,@."); problem != "" {
			return &FieldError{field, problem}
		}
	}
	return nil
}

func forbiddenChars(chars string, allowList bool) string {
	if allowList {
		return chars
	}
	return chars + ",*"
}

// checkName returns why a name is invalid, or "".
func checkName(value, forbidden string) string {
	if len(value) > maxFieldLen {
		return fmt.Sprintf("has %d bytes; the maximum is %d", len(value), maxFieldLen)
	}
	for _, c := range value {
		if isForbiddenRune(c) || unicode.IsSpace(c) || strings.ContainsRune(forbidden, c) {
			return fmt.Sprintf("%q contains %q, which is not allowed", truncate(value), c)
		}
	}
	return ""
}

func isForbiddenRune(c rune) bool { return unicode.IsControl(c) || c == unicode.ReplacementChar }

func truncate(text string) string {
	const maxLen = 100
	if len(text) > maxLen {
		return text[:maxLen] + "…"
	}
	return text
}

// validatePort validates the port of a provider.
func (s *settings) validatePort(r *Request, op operation) error {
	if text := r.Service.Port; text != "" {
		if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
			return &FieldError{"service.port", fmt.Sprintf("%q is not a valid port", truncate(text))}
		}
	} else if op == opPublish && s.Config.ServerPort == 0 {
		return &FieldError{"service.port", "is missing, and no server_port is configured"}
	}
	return nil
}

// validateRegisterMode validates the register mode of a provider.
func validateRegisterMode(r *Request, op operation) error {
	mode, exists := r.Service.Parameters[parameterRegisterMode]
	field := "service.parameters." + parameterRegisterMode
	switch config.RegisterMode(mode) {
	case config.RegisterInterface, config.RegisterInstance, config.RegisterAll:
		if op == opSubscribe {
			return &FieldError{field, "is valid only for published services"}
		}
		return nil
	}
	if !exists {
		return nil
	}
	return &FieldError{field, fmt.Sprintf("%q is not one of %s, %s, %s", truncate(mode), config.RegisterInterface, config.RegisterInstance, config.RegisterAll)}
}

// validateParameters validates additional URL parameters.
func validateParameters(r *Request, _ operation) error {
	for key, value := range r.Service.Parameters {
		field := "service.parameters." + truncate(key)
		switch key {
		case registry.ParameterInterface, registry.ParameterGroup, registry.ParameterVersion, parameterMethods:
			return &FieldError{field, "must be set in service." + key}
		case parameterApplication:
			return &FieldError{field, "must be set in service.name"}
		case registry.ParameterCategory, parameterSide, parameterTimestamp, parameterProcess, parameterDubbo:
			return &FieldError{field, "cannot be set"}
		case "":
			return &FieldError{"service.parameters", "a parameter has no name"}
		}
		if problem := checkName(key, "?&=#%"); problem != "" {
			return &FieldError{field, "its name " + problem}
		}
		if strings.ContainsFunc(value, isForbiddenRune) {
			return &FieldError{field, "contains control characters"}
		}
	}
	return nil
}
