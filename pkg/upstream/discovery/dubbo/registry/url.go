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

// URL is how Dubbo writes everything that is in a registry:
// protocol://user:password@host:port/path?key=value. With returns one that says more.
type URL struct {
	Protocol           string // "dubbo", "consumer", "override", "condition", …
	Username, Password string
	Host               string // a name or an address; IPv6 without brackets
	Port               uint16 // 0: none
	Path               string // without the leading slash
	Parameters         Parameters
}

// The parameters that Weft goes by, and the values of "category".
const (
	ParameterInterface = "interface"
	ParameterGroup     = "group"
	ParameterVersion   = "version"
	ParameterCategory  = "category"

	Providers     = "providers" // the category of a URL that says none
	Consumers     = "consumers"
	Configurators = "configurators"
	Routers       = "routers"
)

// MaxURL bounds a URL, in bytes as it is written.
const MaxURL = 64 << 10

// Parse reads a URL that is not percent-encoded as a whole, and holds on to nothing of the
// text. An error says what is wrong with it.
func Parse(text string) (URL, error) {
	if len(text) > MaxURL {
		return URL{}, fmt.Errorf("a URL of %d bytes: there may be %d", len(text), MaxURL)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme == "" {
		return URL{}, fmt.Errorf("%q has no protocol", clip(text))
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
		return URL{}, fmt.Errorf("%q: %w", clip(text), err)
	}
	var err error
	if u.Parameters, err = parseQuery(query); err != nil {
		return URL{}, fmt.Errorf("%q: %w", clip(text), err)
	}
	// The providers of a service have these in common.
	u.Protocol, u.Path = unique.Make(u.Protocol).Value(), unique.Make(u.Path).Value()
	u.Username, u.Password, u.Host = strings.Clone(u.Username), strings.Clone(u.Password), strings.Clone(u.Host)
	return u, nil
}

// ParseEncoded reads a URL that is percent-encoded as a whole, as registries keep it.
func ParseEncoded(text string) (URL, error) {
	if len(text) > 3*MaxURL {
		return URL{}, fmt.Errorf("a URL of %d bytes encoded: there may be %d", len(text), MaxURL)
	}
	plain, err := url.QueryUnescape(text)
	if err != nil {
		return URL{}, fmt.Errorf("%q: %w", clip(text), err)
	}
	return Parse(plain)
}

func clip(text string) string {
	const most = 200
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// setAddress reads host, host:port, [v6]:port, or v6 as Java writes it.
func (u *URL) setAddress(text string) error {
	u.Host = text
	colons := strings.Count(text, ":")
	bracketed := strings.HasPrefix(text, "[")
	switch {
	case strings.ContainsAny(text, "[]@") && !isBracketed(text):
		return fmt.Errorf("%q is no address", text)
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
		return fmt.Errorf("%q is no port", port)
	}
	u.Host, u.Port = host, uint16(n)
	return nil
}

// isBracketed reports whether the only brackets are around an address at the beginning.
func isBracketed(text string) bool {
	return strings.HasPrefix(text, "[") && strings.Count(text, "[") == 1 && strings.Count(text, "]") == 1 && !strings.Contains(text, "@")
}

// parseQuery reads parameters; of one that is there twice the last counts, and one
// without a value has its name as the value, as in Java.
func parseQuery(query string) (Parameters, error) {
	const usual = 32 // whoever has more waits for more room
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
		// Java writes values as they are: a percent sign may be one, and a plus, as in the
		// version 1.0.0+7, is one.
		if plain, err := unescape(value); err == nil {
			value = plain
		}
		if key == "" {
			return Parameters{}, fmt.Errorf("the parameter %q has no name", clip(part))
		}
		pairs = append(pairs, pair{key, value})
	}
	return collect(pairs), nil
}

// isDoublyEscaped reports whether Java escapes a value by itself, before it does the whole
// URL: then a plus is a space.
func isDoublyEscaped(key string) bool { return key == "rule" }

// String returns the URL with its parameters in the order of their names, so that equal
// URLs are written alike.
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

// escape keeps a value from being read as more than one, and leaves the rest as Java
// writes it.
func escape(key, value string) string {
	if !strings.ContainsAny(value, "%&+#") {
		return value // almost always, and a Replacer is dear
	}
	value = strings.NewReplacer("%", "%25", "&", "%26", "#", "%23").Replace(value)
	if isDoublyEscaped(key) {
		value = strings.ReplaceAll(value, "+", "%2B")
	}
	return value
}

// Encoded returns the URL percent-encoded as a whole, as registries keep it.
func (u URL) Encoded() string { return url.QueryEscape(u.String()) }

// Address returns host:port, or the host alone if there is no port; IPv6 in brackets.
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

// Get returns a parameter; "": it is not there, or empty.
func (u URL) Get(key string) string { return u.Parameters.Get(key) }

// Method returns a parameter of a method, as "sayHello.timeout", else that of the
// service.
func (u URL) Method(method, key string) string {
	if v := u.Get(method + "." + key); v != "" {
		return v
	}
	return u.Get(key)
}

// With returns the URL with parameters set; those whose value is "" are taken out.
func (u URL) With(set map[string]string) URL {
	all := u.Parameters.Map()
	for key, value := range set {
		if value == "" {
			delete(all, key)
			continue
		}
		all[key] = value
	}
	u.Parameters = ParametersOf(all)
	return u
}

// Category returns in which of a service's folders the URL belongs.
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

// Service returns which service the URL is of.
func (u URL) Service() Service {
	s := Service{Interface: u.Get(ParameterInterface), Group: u.Get(ParameterGroup), Version: u.Get(ParameterVersion)}
	if s.Interface == "" {
		s.Interface = u.Path
	}
	return s
}

// Service is what is provided and asked for. Two that differ in any of the three are
// different services.
type Service struct {
	Interface string
	Group     string // "": none
	Version   string // "": none, which Java also writes as "0.0.0"
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

// NoVersion is how Java writes that there is none.
const NoVersion = "0.0.0"

// PlainVersion returns a version; "": none.
func PlainVersion(version string) string {
	if version == NoVersion {
		return ""
	}
	return version
}

// any is what a consumer writes that takes every group, or version.
const anything = "*"

// Accepts reports whether what u provides may be what a consumer of s asks for: the same
// interface, its group or one of its groups ("a,b", "*": all), its version ("*": all). Who
// names no group, or version, may mean any provider's, for his calls say which, and has to
// know what configurators say of them; what is in other categories is about what it says.
func (s Service) Accepts(u URL) bool {
	p := u.Service()
	open := u.Category() == Providers || u.Category() == Configurators
	return s.Interface == p.Interface && (open && s.Group == "" || s.acceptsGroup(p.Group)) && (open && PlainVersion(s.Version) == "" || s.acceptsVersion(p.Version))
}

func (s Service) acceptsGroup(group string) bool {
	if s.Group == anything || s.Group == group {
		return true
	}
	return strings.Contains(s.Group, ",") && slices.Contains(strings.Split(s.Group, ","), group)
}

func (s Service) acceptsVersion(version string) bool {
	return s.Version == anything || PlainVersion(s.Version) == PlainVersion(version)
}
