package compare

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-proxy/weft/test/envoy/cases"
	"github.com/weft-proxy/weft/test/envoy/client"
	"github.com/weft-proxy/weft/test/envoy/origin"
	"github.com/weft-proxy/weft/test/envoy/wire"
)

// View is what is compared of a case: values by aspect. The aspects of responses begin with "resp",
// or "resp0" and so on if there are several. Those of requests at origins begin with "o0" and so
// on. An aspect of a header field ends with ".headers." and the name.
type View map[string][]string

// Aspects with a meaning for Compare and Named.
const (
	distributionPrefix = "requests at "
	timeAspect         = "time"
	logPrefix          = "log."
	originCount        = "n_origin"
)

// maximum lengths of the compared beginnings of bodies
const (
	maxResponseBody = 2000
	maxRequestBody  = 300
	maxLocalReply   = 100 // bodies up to this length are compared even if only the length matters
)

// NewView returns the view of what a client and the origins received in a case.
func NewView(c *cases.Case, out client.Outcome, records []origin.Record, n *Normalizer) View {
	v := View{}
	if c.Distribution || c.Counts {
		v.distribution(out, records)
		return v
	}
	if c.SameHost || c.AnyHost {
		v.sameHost(c, out, records)
	}
	v.text("error", out.Error)
	for i, r := range out.Responses {
		name := "resp"
		if len(out.Responses) > 1 {
			name = fmt.Sprintf("resp%d", i)
		}
		v.response(name, c, r, n)
	}
	if out.Tunnel != nil {
		v["tunnel"] = []string{*out.Tunnel}
	}
	v["closed"] = []string{strconv.FormatBool(out.Closed)}
	v.text("goaway", out.GoAway)
	v.text("extra", out.Extra[:min(len(out.Extra), 60)])
	v.text("tls", out.TLS)
	if out.Received != nil {
		v["received"] = []string{n.Text(*out.Received)}
	}
	for stream, frames := range out.Frames {
		v["frames."+stream] = frames
	}
	if !c.ResponseOnly {
		v[originCount] = []string{strconv.Itoa(len(records))}
		if c.Sorted {
			slices.SortStableFunc(records, func(a, b origin.Record) int { return cmp.Compare(a.Origin, b.Origin) })
		}
		for i, r := range records {
			v.record(fmt.Sprintf("o%d", i), c, r, n)
		}
	}
	if c.TimeUnit > 0 {
		v[timeAspect] = []string{strconv.Itoa(int(math.Round(float64(out.Elapsed) / float64(c.TimeUnit))))}
	}
	return v
}

// AddLog adds the lines of the access log. Each line begins with the ID of the case, and then has
// the fields of logFields.
func (v View) AddLog(c *cases.Case, lines []string, n *Normalizer) {
	if c.Distribution || c.Counts {
		return
	}
	for _, line := range lines {
		values := strings.Split(strings.TrimPrefix(line, c.ID+" "), " ")
		for i, field := range logFields() {
			value := "-"
			if i < len(values) {
				value = n.Text(values[i])
			}
			v[logPrefix+field] = append(v[logPrefix+field], value)
		}
	}
}

// logFields returns names for the fields of the access log after the ID of the case.
func logFields() []string { return []string{"status", "flags", "cluster", "protocol", "details"} }

// text adds a value unless it is empty.
func (v View) text(aspect, value string) {
	if value != "" {
		v[aspect] = []string{value}
	}
}

func (v View) fields(aspect string, byName map[string][]string) {
	for name, values := range byName {
		v[aspect+"."+name] = values
	}
}

// distribution adds how many requests each origin received, and how many responses have each
// status.
func (v View) distribution(out client.Outcome, records []origin.Record) {
	count := map[string]int{}
	for _, r := range records {
		count[distributionPrefix+r.Origin]++
	}
	for _, r := range out.Responses {
		count[distributionPrefix+"status "+strconv.Itoa(r.Status)]++
	}
	for aspect, n := range count {
		v[aspect] = []string{strconv.Itoa(n)}
	}
}

// sameHost adds whether all requests reached one origin, if that matters. It gives all origins one
// name.
func (v View) sameHost(c *cases.Case, out client.Outcome, records []origin.Record) {
	several := false
	for i := range records {
		several = several || records[i].Origin != records[0].Origin
	}
	if c.SameHost && several {
		v["hosts"] = []string{"several"}
	}
	for i := range records {
		for j := range out.Responses {
			if string(out.Responses[j].Body) == "from "+records[i].Origin {
				out.Responses[j].Body = []byte("from a host")
			}
		}
		records[i].Origin = "a host"
	}
}

func (v View) response(name string, c *cases.Case, r client.Response, n *Normalizer) {
	v.text(name+".reset", r.Reset)
	if r.Missing {
		text := "none"
		if r.TimedOut {
			text += " timeout"
		}
		v[name] = []string{strings.TrimSpace(text + " " + r.Partial)}
		return
	}
	v[name+".status"] = []string{strconv.Itoa(r.Status)}
	if c.Shape {
		v.shape(name, r)
		return
	}
	if c.Statistic != cases.NoStatistic {
		text := string(r.Body)
		if c.Statistic == cases.StatisticName {
			text, _, _ = strings.Cut(text, ":")
		}
		v[name+".body"] = []string{text}
		return
	}
	v.text(name+".version", r.Version)
	v.fields(name+".headers", n.fields(r.Fields, "date"))
	content := decompressed(r)
	body := n.Text(string(content[:min(len(content), maxResponseBody)]))
	if c.BodyLength && len(content) > maxLocalReply {
		body = fmt.Sprintf("%d bytes", len(content))
	}
	v[name+".body"] = []string{body}
	v.trailers(name, r.Trailers, n)
	if r.Cut {
		v[name+".cut"] = []string{"true"}
	}
}

// maxKeyDepth is the depth of the keys that shape compares: below it, pages show configuration.
const maxKeyDepth = 4

// shape adds the type of the content and, of a body in JSON, the paths of its keys. The elements of a
// list have one path.
func (v View) shape(name string, r client.Response) {
	contentType, _ := wire.Get(r.Fields, "content-type")
	v[name+".type"] = []string{contentType}
	var body any
	if json.Unmarshal(r.Body, &body) != nil {
		return
	}
	paths := map[string]bool{}
	addPaths(paths, "", body, maxKeyDepth)
	v[name+".keys"] = slices.Sorted(maps.Keys(paths))
}

func addPaths(paths map[string]bool, path string, node any, depth int) {
	if depth == 0 {
		return
	}
	switch n := node.(type) {
	case map[string]any:
		for key, value := range n {
			paths[path+"/"+key] = true
			addPaths(paths, path+"/"+key, value, depth-1)
		}
	case []any:
		for _, value := range n {
			addPaths(paths, path+"[]", value, depth)
		}
	}
}

// decompressed returns the body of a response without its content coding, or the first bytes of a
// zstd frame. Two programs compress the same body to different bytes.
func decompressed(r client.Response) []byte {
	hasCoding := func(name string) bool {
		return slices.ContainsFunc(r.Fields, func(f wire.Field) bool {
			return strings.EqualFold(f.Name, "content-encoding") && strings.EqualFold(f.Value, name)
		})
	}
	switch {
	case hasCoding("zstd"):
		return r.Body[:min(len(r.Body), len("\x28\xb5\x2f\xfd"))]
	case !hasCoding("gzip"):
		return r.Body
	}
	reader, err := gzip.NewReader(bytes.NewReader(r.Body))
	if err != nil {
		return r.Body
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		return r.Body
	}
	return content
}

// trailers adds all trailers as one aspect.
func (v View) trailers(name string, trailers []wire.Field, n *Normalizer) {
	for _, f := range trailers {
		v[name+".trailers"] = append(v[name+".trailers"], strings.ToLower(f.Name)+": "+n.Text(f.Value))
	}
}

// proxyPort matches a port in a header of the PROXY protocol, version 1.
var proxyPort = regexp.MustCompile(`\d{4,5}`)

func (v View) record(name string, c *cases.Case, r origin.Record, n *Normalizer) {
	v[name+".origin"] = []string{r.Origin}
	if r.TCP {
		v[name+".data"] = []string{string(r.Body)}
		return
	}
	v[name+".line"] = []string{n.Text(r.Line)}
	v.fields(name+".headers", n.fields(r.Fields, append([]string{strings.ToLower(wire.CaseField)}, c.Ignored...)...))
	v[name+".body"] = []string{string(r.Body[:min(len(r.Body), maxRequestBody)])}
	v.trailers(name, r.Trailers, n)
	v.text(name+".tls", r.TLS)
	if strings.HasPrefix(r.Proxy, "v2") {
		v.text(name+".proxy", r.Proxy)
	} else {
		v.text(name+".proxy", proxyPort.ReplaceAllString(r.Proxy, "<port>"))
	}
	if r.Continued {
		v[name+".continued"] = []string{"true"}
	}
}
