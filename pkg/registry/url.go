package registry

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unique"
)

// URL is Dubbo's notation for providers, consumers and rules:
// protocol://user:password@host:port/path?key=value.
type URL struct {
	Protocol           string // "dubbo", "consumer", "override", "condition", …
	Username, Password string
	Host               string // a name or an address; IPv6 without brackets
	Port               uint16 // 0: no port
	Path               string // without the leading slash
	Parameters         Parameters
}

// Parameters that identify a service and a category, and the categories.
const (
	ParameterInterface = "interface"
	ParameterGroup     = "group"
	ParameterVersion   = "version"
	ParameterCategory  = "category"

	Providers     = "providers" // the default category
	Consumers     = "consumers"
	Configurators = "configurators"
	Routers       = "routers"
)

// MaxURL bounds the length of a URL, in bytes.
const MaxURL = 64 << 10

// Parse parses a URL that is not percent-encoded as a whole. The result does not retain text.
func Parse(text string) (URL, error) {
	if len(text) > MaxURL {
		return URL{}, fmt.Errorf("a URL has %d bytes; the maximum is %d", len(text), MaxURL)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme == "" {
		return URL{}, fmt.Errorf("%q has no protocol", truncate(text))
	}
	u := URL{Protocol: scheme}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	u.Path = path
	if user, host, ok := cutLast(authority, "@"); ok {
		u.Username, u.Password, _ = strings.Cut(user, ":")
		authority = host
	}
	if err := u.setAddress(authority); err != nil {
		return URL{}, fmt.Errorf("%q: %w", truncate(text), err)
	}
	var err error
	if u.Parameters, err = parseQuery(query); err != nil {
		return URL{}, fmt.Errorf("%q: %w", truncate(text), err)
	}
	// Most URLs of a service have the same protocol and path, so they share one copy.
	u.Protocol, u.Path = unique.Make(u.Protocol).Value(), unique.Make(u.Path).Value()
	u.Username, u.Password, u.Host = strings.Clone(u.Username), strings.Clone(u.Password), strings.Clone(u.Host)
	return u, nil
}

// ParseEncoded parses a URL that is percent-encoded as a whole, as registries store it.
func ParseEncoded(text string) (URL, error) {
	if len(text) > 3*MaxURL {
		return URL{}, fmt.Errorf("an encoded URL has %d bytes; the maximum for decoded URLs is %d", len(text), MaxURL)
	}
	decoded, err := url.QueryUnescape(text)
	if err != nil {
		return URL{}, fmt.Errorf("%q: %w", truncate(text), err)
	}
	return Parse(decoded)
}

func truncate(text string) string {
	const limit = 200
	if len(text) > limit {
		return text[:limit] + "…"
	}
	return text
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// setAddress parses host, host:port, [v6], [v6]:port, or v6 without brackets, as Java writes it.
func (u *URL) setAddress(text string) error {
	u.Host = text
	colons := strings.Count(text, ":")
	bracketed := strings.HasPrefix(text, "[")
	switch {
	case strings.ContainsAny(text, "[]@") && !isBracketed(text):
		return fmt.Errorf("%q is not a valid address", text)
	case bracketed && strings.HasSuffix(text, "]"):
		u.Host = text[1 : len(text)-1]
		return nil
	case colons == 0, colons > 1 && !bracketed:
		return nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is not a valid port", port)
	}
	u.Host, u.Port = host, uint16(n)
	return nil
}

// isBracketed reports whether text begins with a bracket, and has one pair of brackets and no "@".
func isBracketed(text string) bool {
	return strings.HasPrefix(text, "[") && strings.Count(text, "[") == 1 && strings.Count(text, "]") == 1 && !strings.Contains(text, "@")
}

// parseQuery parses parameters as Java does: of several parameters with one name the last wins, and
// the value of a parameter without "=" is its name.
func parseQuery(query string) (Parameters, error) {
	const usual = 32 // usual number of parameters
	pairs := make([]pair, 0, min(strings.Count(query, "&")+1, usual))
	for part := range strings.SplitSeq(query, "&") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			value = key
		}
		unescape := url.PathUnescape
		if isDoublyEscaped(key) {
			unescape = url.QueryUnescape
		}
		// Java writes values without escapes: a percent sign or a plus, as in the version 1.0.0+7,
		// may be literal.
		if unescaped, err := unescape(value); err == nil {
			value = unescaped
		}
		if key == "" {
			return Parameters{}, fmt.Errorf("the parameter %q has no name", truncate(part))
		}
		pairs = append(pairs, pair{key, value})
	}
	return newParameters(pairs), nil
}

// isDoublyEscaped reports whether Java escapes the value of a parameter separately before it
// escapes the whole URL. A plus in such a value is a space.
func isDoublyEscaped(key string) bool { return key == "rule" }

// String returns the URL with its parameters sorted by name, so that equal URLs have equal texts.
func (u URL) String() string {
	var b strings.Builder
	const punctuation = len("://:@[]:65535/")
	b.Grow(len(u.Protocol) + len(u.Username) + len(u.Password) + len(u.Host) + len(u.Path) + punctuation + len(u.Parameters.text) + 2*u.Parameters.Len())
	b.WriteString(u.Protocol)
	b.WriteString("://")
	if u.Username != "" || u.Password != "" {
		b.WriteString(u.Username)
		if u.Password != "" {
			b.WriteString(":" + u.Password)
		}
		b.WriteByte('@')
	}
	b.WriteString(u.Address())
	if u.Path != "" {
		b.WriteString("/" + u.Path)
	}
	separator := byte('?')
	for key, value := range u.Parameters.All() {
		b.WriteByte(separator)
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(escape(key, value))
		separator = '&'
	}
	return b.String()
}

// escape escapes "%", "&" and "#", and "+" if Java escapes the value separately. It leaves other
// characters as Java writes them.
func escape(key, value string) string {
	if !strings.ContainsAny(value, "%&+#") {
		return value // the common case; a Replacer is expensive
	}
	value = strings.NewReplacer("%", "%25", "&", "%26", "#", "%23").Replace(value)
	if isDoublyEscaped(key) {
		value = strings.ReplaceAll(value, "+", "%2B")
	}
	return value
}

// Encoded returns the URL percent-encoded as a whole, as registries store it.
func (u URL) Encoded() string { return url.QueryEscape(u.String()) }

// Address returns host:port, or only the host if there is no port, with brackets around an IPv6
// host.
func (u URL) Address() string {
	switch {
	case u.Port != 0:
	case strings.Contains(u.Host, ":"):
		return "[" + u.Host + "]"
	default:
		return u.Host
	}
	return net.JoinHostPort(u.Host, strconv.Itoa(int(u.Port)))
}

// Get returns the value of a parameter, or "" if it is missing or empty.
func (u URL) Get(key string) string { return u.Parameters.Get(key) }

// MethodParameter returns the value of a parameter for a method, such as "sayHello.timeout", or the
// value for the whole service.
func (u URL) MethodParameter(method, key string) string {
	if v := u.Get(method + "." + key); v != "" {
		return v
	}
	return u.Get(key)
}

// With returns the URL with the parameters in set. An empty value removes its parameter.
func (u URL) With(set map[string]string) URL {
	values := u.Parameters.Map()
	for key, value := range set {
		if value == "" {
			delete(values, key)
			continue
		}
		values[key] = value
	}
	u.Parameters = ParametersOf(values)
	return u
}

// Category returns the value of ParameterCategory or, if it is "", the category that the protocol
// implies.
func (u URL) Category() string {
	if c := u.Get(ParameterCategory); c != "" {
		return c
	}
	switch u.Protocol {
	case "consumer":
		return Consumers
	case "override", "absent":
		return Configurators
	case "route", "condition", "script", "tag":
		return Routers
	}
	return Providers
}

// Service returns the service of the URL.
func (u URL) Service() Service {
	s := Service{Interface: u.Get(ParameterInterface), Group: u.Get(ParameterGroup), Version: u.Get(ParameterVersion)}
	if s.Interface == "" {
		s.Interface = u.Path
	}
	return s
}

// Service identifies a service that providers provide and consumers call.
type Service struct {
	Interface string
	Group     string // "": no group
	Version   string // "": no version, which Java also writes as "0.0.0"
}

// String returns Dubbo's service key: group/interface:version.
func (s Service) String() string {
	text := s.Interface
	if s.Group != "" {
		text = s.Group + "/" + text
	}
	if s.Version != "" {
		text += ":" + s.Version
	}
	return text
}

// NoVersion is how Java writes that a service has no version.
const NoVersion = "0.0.0"

// PlainVersion returns version, or "" for NoVersion.
func PlainVersion(version string) string {
	if version == NoVersion {
		return ""
	}
	return version
}

// wildcard is the group or version of a consumer that accepts all groups or versions.
const wildcard = "*"

// Accepts reports whether u belongs to a service that a consumer of s may call. The interfaces must
// be equal. The group of u must be that of s, or one of its groups ("a,b"; "*": all). The versions
// must be equal ("*": all). If s has no group, providers and configurators of every group match,
// because each call has its own group. The same applies to the version. URLs of other categories
// must match exactly.
func (s Service) Accepts(u URL) bool {
	provided := u.Service()
	unsetMatches := u.Category() == Providers || u.Category() == Configurators
	return s.Interface == provided.Interface && (unsetMatches && s.Group == "" || s.acceptsGroup(provided.Group)) && (unsetMatches && PlainVersion(s.Version) == "" || s.acceptsVersion(provided.Version))
}

func (s Service) acceptsGroup(group string) bool {
	if s.Group == wildcard || s.Group == group {
		return true
	}
	return strings.Contains(s.Group, ",") && slices.Contains(strings.Split(s.Group, ","), group)
}

func (s Service) acceptsVersion(version string) bool {
	return s.Version == wildcard || PlainVersion(s.Version) == PlainVersion(version)
}
