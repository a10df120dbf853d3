package compare

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/wire"
)

// Normalizer replaces ports, random IDs and times, which differ between any two runs.
type Normalizer struct {
	ports []portName
	uuid  *regexp.Regexp
	port  *regexp.Regexp
}

type portName struct {
	port string
	name string
}

// NewNormalizer returns a Normalizer for a proxy with listeners and origins on these ports.
func NewNormalizer(listeners, origins map[string]int) *Normalizer {
	n := &Normalizer{
		uuid: regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
		port: regexp.MustCompile(`\b[3-6]\d{4}\b`),
	}
	for _, port := range listeners {
		n.ports = append(n.ports, portName{strconv.Itoa(port), "<listener>"})
	}
	for name, port := range origins {
		n.ports = append(n.ports, portName{strconv.Itoa(port), "<" + name + ">"})
	}
	slices.SortFunc(n.ports, func(a, b portName) int { return cmp.Compare(a.port, b.port) })
	return n
}

// Text replaces random IDs, the ports of listeners and origins, and ports of connections.
func (n *Normalizer) Text(text string) string {
	text = n.uuid.ReplaceAllString(text, "<uuid>")
	return n.port.ReplaceAllStringFunc(text, func(port string) string {
		i, found := slices.BinarySearchFunc(n.ports, port, func(p portName, port string) int { return cmp.Compare(p.port, port) })
		if found {
			return n.ports[i].name
		}
		if port >= "32768" && port <= "60999" {
			return "<port>" // the default range of the kernel for connections
		}
		return port
	})
}

// hashCookie matches the value of a cookie that a proxy generates for a hash policy.
var hashCookie = regexp.MustCompile(`=("?)[0-9a-f]{16}"?`)

// fields groups fields by lower-case name: the order of different names does not matter. It skips
// ignored names.
func (n *Normalizer) fields(fields []wire.Field, ignored ...string) map[string][]string {
	byName := map[string][]string{}
	for _, f := range fields {
		name, value := strings.ToLower(f.Name), n.Text(f.Value)
		if slices.Contains(ignored, name) {
			continue
		}
		if name == "x-envoy-upstream-service-time" && f.Value != "" {
			value = "<ms>"
		}
		if name == "set-cookie" {
			value = hashCookie.ReplaceAllString(value, "=$1<hash>$1")
		}
		byName[name] = append(byName[name], value)
	}
	return byName
}
