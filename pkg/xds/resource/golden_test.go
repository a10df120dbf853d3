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

var update = goflag.Bool("update", false, "write the results of the readers to testdata")

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

func cases(t testing.TB, text string) (out []goldenCase) {
	t.Helper()
	for section := range strings.SplitSeq("\n"+strings.TrimSpace(text), "\n# ") {
		if section == "" {
			continue
		}
		name, rest, _ := strings.Cut(section, "\n")
		in, want, _ := strings.Cut(rest+"\n", "\n----\n")
		if want = strings.TrimSpace(want); want != "" {
			want += "\n"
		}
		out = append(out, goldenCase{strings.TrimSpace(name), strings.TrimSpace(in), want})
	}
	if len(out) < 2 {
		t.Fatal("the file has fewer than 2 cases")
	}
	return out
}

// reader is a Read function under test.
type reader struct {
	name    string // name of the file in testdata, without .txt
	pems    *strings.Replacer
	message func() proto.Message
	read    func(body []byte) (model any, ignored []string, err error)
}

// pems returns a replacer that puts certificates and keys in place of $CERT, $KEY, $OTHERKEY and
// $CA.
func pems(t testing.TB) *strings.Replacer {
	ca := testpki.New(t)
	pair, other := ca.Issue(testpki.Spec{}), ca.Issue(testpki.Spec{})
	var list []string
	for name, pem := range map[string][]byte{"$CERT": pair.Cert, "$KEY": pair.Key, "$OTHERKEY": other.Key, "$CA": ca.PEM} {
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
			type dumped struct {
				Config          *config.Cluster
				Endpoints       string
				EndpointTimeout string
				Sockets         []TransportSocketMatch
			}
			resolved := c.Config
			if c.EDSServiceName == "" && len(c.Secrets()) == 0 {
				resolved, _ = c.Resolve(nil, nil)
			}
			return dumped{resolved, c.EDSServiceName, c.InitialFetchTimeout.String(), c.TransportSocketMatches}, c.Ignored, nil
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
		leaves := map[string]string{}
		flatten("", reflect.ValueOf(model), leaves)
		if *base == nil {
			*base = leaves
			for _, k := range sortedKeys(leaves) {
				if !isZeroText(leaves[k]) {
					fmt.Fprintf(&out, "%s: %s\n", k, leaves[k])
				}
			}
		} else {
			for _, k := range sortedKeys(leaves) {
				baseValue, inBase := (*base)[k]
				if inBase && baseValue != leaves[k] || !inBase && !isZeroText(leaves[k]) {
					fmt.Fprintf(&out, "%s: %s\n", k, leaves[k])
				}
			}
		}
	}
	for _, i := range ignored {
		fmt.Fprintf(&out, "ignored %s\n", i)
	}
	var rejected RejectedError
	if errors.As(err, &rejected) {
		for _, reason := range rejected {
			fmt.Fprintf(&out, "rejected %s\n", reason)
		}
	}
	return out.String()
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare)
	return keys
}

func isZeroText(s string) bool { return s == "" || s == "0" || s == "false" || s == `""` || s == "0s" }

// flatten adds the leaves of v to leaves by path. It replaces strings with several lines.
func flatten(path string, v reflect.Value, leaves map[string]string) {
	if s, ok := v.Interface().(fmt.Stringer); ok && v.Kind() != reflect.Pointer {
		leaves[path] = s.String()
		return
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			flatten(path, v.Elem(), leaves)
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
			flatten(strings.TrimPrefix(name, "Config."), v.Field(i), leaves)
		}
	case reflect.Slice:
		for i := range v.Len() {
			flatten(path+"["+strconv.Itoa(i)+"]", v.Index(i), leaves)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			flatten(path+"["+k.String()+"]", v.MapIndex(k), leaves)
		}
	case reflect.String:
		text := v.String()
		switch {
		case text == "":
			text = `""`
		case strings.Contains(text, "\n"):
			text = "(several lines)"
		}
		leaves[path] = text
	default:
		leaves[path] = fmt.Sprint(v.Interface())
	}
}
