package resource

import (
	"cmp"
	"errors"
	goflag "flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weft-proxy/weft/internal/testpki"
	"github.com/weft-proxy/weft/pkg/config"
)

var update = goflag.Bool("update", false, "write what the readers say into testdata")

// TestReaders verifies the cases in the files of testdata. A case is a line "# name", a resource as
// JSON, "----", and the result: the values that differ from the first case of the file, the ignored
// fields, and the reasons for a rejection.
func TestReaders(t *testing.T) {
	pems := pems(t)
	for _, r := range readers() {
		r.pems = pems
		t.Run(r.name, func(t *testing.T) {
			path := "testdata/" + r.name + ".txt"
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			var base map[string]string
			for _, c := range cases(t, string(text)) {
				got := r.dump(t, c.in, &base)
				fmt.Fprintf(&out, "# %s\n%s\n----\n%s\n", c.name, c.in, got)
				if got != c.want && !*update {
					t.Errorf("%s: %s\n%s\nis read as\n%s\nwant\n%s", path, c.name, c.in, got, c.want)
				}
			}
			if !*update {
				return
			}
			if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// goldenCase is one case of a file.
type goldenCase struct{ name, in, want string }

func cases(t testing.TB, text string) (all []goldenCase) {
	t.Helper()
	for one := range strings.SplitSeq("\n"+strings.TrimSpace(text), "\n# ") {
		if one == "" {
			continue
		}
		name, rest, _ := strings.Cut(one, "\n")
		in, want, _ := strings.Cut(rest+"\n", "\n----\n")
		if want = strings.TrimSpace(want); want != "" {
			want += "\n"
		}
		all = append(all, goldenCase{strings.TrimSpace(name), strings.TrimSpace(in), want})
	}
	if len(all) < 2 {
		t.Fatal("the file has no cases")
	}
	return all
}

// reader is a Read function under test.
type reader struct {
	name    string // of the file in testdata
	pems    *strings.Replacer
	message func() proto.Message
	read    func(body []byte) (model any, ignored []string, err error)
}

// pems returns a replacer that puts certificates and keys in place of $CERT, $KEY, $OTHERKEY and
// $CA.
func pems(t testing.TB) *strings.Replacer {
	ca := testpki.New(t)
	mine, other := ca.Issue(testpki.Spec{}), ca.Issue(testpki.Spec{})
	var list []string
	for name, pem := range map[string][]byte{"$CERT": mine.Cert, "$KEY": mine.Key, "$OTHERKEY": other.Key, "$CA": ca.PEM} {
		list = append(list, name, strings.ReplaceAll(string(pem), "\n", `\n`))
	}
	return strings.NewReplacer(list...)
}

func readers() []reader {
	return []reader{
		{name: "cluster", message: func() proto.Message { return &clusterv3.Cluster{} }, read: func(b []byte) (any, []string, error) {
			c, err := ReadCluster(b, Capabilities{})
			if err != nil {
				return nil, c.Ignored, err
			}
			type shown struct {
				Config          *config.Cluster
				Endpoints       string
				EndpointTimeout string
				Sockets         []TransportSocketMatch
			}
			whole := c.Config
			if c.EDSServiceName == "" && len(c.Secrets()) == 0 {
				whole, _ = c.Resolve(nil, nil)
			}
			return shown{whole, c.EDSServiceName, c.InitialFetchTimeout.String(), c.TransportSocketMatches}, c.Ignored, nil
		}},
		{name: "endpoint", message: func() proto.Message { return &endpointv3.ClusterLoadAssignment{} }, read: func(b []byte) (any, []string, error) {
			a, err := ReadLoadAssignment(b, Capabilities{})
			ignored := a.Ignored
			a.Ignored = nil
			return a, ignored, err
		}},
		{name: "secret", message: func() proto.Message { return &tlsv3.Secret{} }, read: func(b []byte) (any, []string, error) {
			s, err := ReadSecret(b, Capabilities{})
			ignored := s.Ignored
			s.Ignored = nil
			return s, ignored, err
		}},
	}
}

// dump reads a resource in JSON and returns the result as text; base is the result of the first
// case.
func (r reader) dump(t *testing.T, in string, base *map[string]string) string {
	t.Helper()
	m := r.message()
	if err := protojson.Unmarshal([]byte(r.pems.Replace(in)), m); err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	model, ignored, err := r.read(body)
	var out strings.Builder
	if err == nil {
		all := map[string]string{}
		flatten("", reflect.ValueOf(model), all)
		if *base == nil {
			*base = all
			for _, k := range ordered(all) {
				if !isZeroText(all[k]) {
					fmt.Fprintf(&out, "%s: %s\n", k, all[k])
				}
			}
		} else {
			for _, k := range ordered(all) {
				was, known := (*base)[k]
				if known && was != all[k] || !known && !isZeroText(all[k]) {
					fmt.Fprintf(&out, "%s: %s\n", k, all[k])
				}
			}
		}
	}
	for _, i := range ignored {
		fmt.Fprintf(&out, "ignored %s\n", i)
	}
	var refused RejectedError
	if errors.As(err, &refused) {
		for _, w := range refused {
			fmt.Fprintf(&out, "refused %s\n", w)
		}
	}
	return out.String()
}

func ordered(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	return keys
}

func isZeroText(s string) bool { return s == "" || s == "0" || s == "false" || s == `""` || s == "0s" }

// flatten adds the leaves of v to all by path, and multi-line strings by length.
func flatten(path string, v reflect.Value, all map[string]string) {
	if s, ok := v.Interface().(fmt.Stringer); ok && v.Kind() != reflect.Pointer {
		all[path] = s.String()
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			flatten(path, v.Elem(), all)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() {
				continue
			}
			name := path
			if !f.Anonymous {
				name = strings.TrimPrefix(path+"."+f.Name, ".")
			}
			flatten(strings.TrimPrefix(name, "Config."), v.Field(i), all)
		}
	case reflect.Slice:
		for i := range v.Len() {
			flatten(path+"["+strconv.Itoa(i)+"]", v.Index(i), all)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			flatten(path+"["+k.String()+"]", v.MapIndex(k), all)
		}
	case reflect.String:
		text := v.String()
		switch {
		case text == "":
			text = `""`
		case strings.Contains(text, "\n"):
			text = "(several lines)"
		}
		all[path] = text
	default:
		all[path] = fmt.Sprint(v.Interface())
	}
}
