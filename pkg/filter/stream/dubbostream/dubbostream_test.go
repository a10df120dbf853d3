package dubbostream

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/internal/metrics"
	"github.com/weft-proxy/weft/pkg/filter"
	"github.com/weft-proxy/weft/pkg/filter/filtertest"
	"github.com/weft-proxy/weft/pkg/protocol"
)

var update = flag.Bool("update", false, "write the tables of README.md")

func TestReadme(t *testing.T) {
	examples := filtertest.CheckReadme(t, Factory(), *update)
	if len(examples) != 1 {
		t.Fatalf("%d examples, want 1", len(examples))
	}
	f, counts := filtertest.Build(t, Factory(), examples[0])
	if err := dubboRequest().Serve(t.Context(), f(providerWithStatus(statusOK))); err != nil || counts.Value(requestsMetric()) != 1 {
		t.Errorf("Serve = %v, %v requests counted, want 1", err, counts.Value(requestsMetric()))
	}
}

// dubboRequest returns a request as the engine decodes it, with attachments in the form "name:
// value".
func dubboRequest(attachments ...string) *protocol.Exchange {
	x := new(protocol.Exchange)
	x.Reset()
	x.Meta.Protocol = "dubbo"
	x.Request.Authority, x.Request.Path = "org.example.Shop", "/org.example.Shop/buy"
	x.Request.Header.Add("service", "org.example.Shop")
	x.Request.Header.Add("method", "buy")
	filtertest.AddHeaders(&x.Request.Header, attachments...)
	x.Request.Header.MarkUnchanged()
	return x
}

// providerWithStatus returns a provider that responds with the given status.
func providerWithStatus(code int) protocol.Service {
	return protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Response.Status, x.Response.Code = 200, code
		return nil
	})
}

// recordingRouter records the request that a router receives.
type recordingRouter struct {
	authority, path string
	header          string // "name: value" in order, after service and method
	changed         bool
}

func (r *recordingRouter) Start(_ context.Context, x *protocol.Exchange) error {
	var fields []string
	for name, value := range x.Request.Header.All() {
		fields = append(fields, name+": "+value)
	}
	*r = recordingRouter{x.Request.Authority, x.Request.Path, strings.Join(fields[2:], ", "), x.Request.Header.Changed()}
	x.Response.Code = statusOK
	return nil
}

// withLabels returns settings for a pod with these labels.
func withLabels(t *testing.T, text, subset string) filtertest.Settings {
	t.Helper()
	name := filepath.Join(t.TempDir(), "labels")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return filtertest.Settings(`{"pod_labels_file": ` + strconv.Quote(name) + `, "subset": ` + strconv.Quote(subset) + `}`)
}

const podLabels = "app=\"tester\"\ngroup=\"blue\"\n\nplain=yes\nquoted=\"a\\\"b\"\nVersion=\"v1\"\n"

func TestRouterSeesLabelsAsHeaders(t *testing.T) {
	for _, test := range []struct {
		name        string
		attachments []string
		header      string
	}{
		{"labels are headers", nil, `app: tester, plain: yes, quoted: a"b`},
		{"attachment has precedence over a label", []string{"app: shop"}, `app: shop, plain: yes, quoted: a"b`},
		{"attachment in another case has precedence", []string{"Plain: no"}, `Plain: no, app: tester, quoted: a"b`},
		{"group of the request is kept", []string{"group: green"}, `group: green, app: tester, plain: yes, quoted: a"b`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, _ := filtertest.Build(t, Factory(), withLabels(t, podLabels, ""))
			var got recordingRouter
			x := dubboRequest(test.attachments...)
			if err := x.Serve(t.Context(), f(&got)); err != nil {
				t.Fatal(err)
			}
			if want := (recordingRouter{"org.example.Shop", "/", test.header, false}); got != want {
				t.Errorf("the router received %+v, want %+v", got, want)
			}
			if x.Request.Path != "/org.example.Shop/buy" {
				t.Errorf("path after the exchange = %q, want the original path", x.Request.Path)
			}
		})
	}
}

// TestChangedHeaderStaysChanged verifies that labels do not clear the mark of a header that an
// earlier filter changed.
func TestChangedHeaderStaysChanged(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), withLabels(t, podLabels, ""))
	var got recordingRouter
	x := dubboRequest()
	x.Request.Header.Add("tenant", "7")
	if err := x.Serve(t.Context(), f(&got)); err != nil || !got.changed {
		t.Errorf("Serve = %v, changed %v, want a change", err, got.changed)
	}
}

func TestRewrittenPathIsKept(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), `{}`)
	x := dubboRequest()
	s := f(protocol.BlockingFunc(func(_ context.Context, x *protocol.Exchange) error {
		x.Record.OriginalPath, x.Request.Path = x.Request.Path, "/rewritten"
		return nil
	}))
	if err := x.Serve(t.Context(), s); err != nil || x.Request.Path != "/rewritten" {
		t.Errorf("Serve = %v, path %q, want /rewritten", err, x.Request.Path)
	}
}

func TestOtherProtocolsPass(t *testing.T) {
	for _, name := range []string{"Http1", "bolt", ""} {
		f, counts := filtertest.Build(t, Factory(), withLabels(t, podLabels, ""))
		x := dubboRequest()
		x.Meta.Protocol = name
		var got recordingRouter
		if err := x.Serve(t.Context(), f(&got)); err != nil || got != (recordingRouter{"org.example.Shop", "/org.example.Shop/buy", "", false}) {
			t.Errorf("%s: Serve = %v, the router received %+v; want nil and a call of buy on org.example.Shop without labels", name, err, got)
		}
		if n := counts.Value(requestsMetric()); n != 0 {
			t.Errorf("%s: %v requests counted, want 0", name, n)
		}
	}
}

func TestResponsesAreCountedByStatus(t *testing.T) {
	noHost := protocol.NewFault(protocol.NoHealthyHost, nil)
	for name, test := range map[string]struct {
		next                protocol.Service
		oneWay              bool
		succeeded, failures float64
	}{
		"OK":            {providerWithStatus(statusOK), false, 1, 0},
		"service error": {providerWithStatus(70), false, 0, 1},
		"fault":         {protocol.BlockingFunc(func(context.Context, *protocol.Exchange) error { return noHost }), false, 0, 1},
		"local reply":   {providerWithStatus(protocol.NoCode), false, 0, 1},
		"one-way":       {providerWithStatus(protocol.NoCode), true, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, counts := filtertest.Build(t, Factory(), `{}`)
			x := dubboRequest()
			x.Request.OneWay = test.oneWay
			if err := x.Serve(t.Context(), f(test.next)); err != nil && !errors.Is(err, noHost) {
				t.Fatal(err)
			}
			if requests, successes, failures := counts.Value(requestsMetric()), counts.Value(successesMetric()), counts.Value(failuresMetric()); requests != 1 || successes != test.succeeded || failures != test.failures {
				t.Errorf("%v requests, %v successes, %v failures; want 1, %v, %v", requests, successes, failures, test.succeeded, test.failures)
			}
		})
	}
}

func TestSubsetLabel(t *testing.T) {
	for name, test := range map[string]struct{ labels, subset, want string }{
		"label":                      {podLabels, "app", "tester"},
		"label that is not a header": {podLabels, "group", "blue"},
		"unknown label":              {podLabels, "zone", noSubset},
		"label without a value":      {"zone=\"\"\n", "zone", noSubset},
		"no subset":                  {podLabels, "", noSubset},
		"pod without labels":         {"", "app", noSubset},
		"no line break at the end":   {`app="x"`, "app", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := filtertest.Decode(t, Factory(), withLabels(t, test.labels, test.subset))
			registry := metrics.New(metrics.Options{})
			f, err := Factory().New(cfg, filter.Env{Metrics: registry})
			if err != nil {
				t.Fatal(err)
			}
			if err := dubboRequest().Serve(t.Context(), f(providerWithStatus(statusOK))); err != nil {
				t.Fatal(err)
			}
			for _, m := range Factory().Metrics[:2] {
				if got := registry.Counter(m, test.want).Value(); got != 1 {
					t.Errorf("%s{subset=%q} = %d, want 1", m.Name, test.want, got)
				}
			}
		})
	}
}

func TestInvalidFileIsRejected(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"no value":      {"app\n", `line 1 is "app"`},
		"no name":       {"a=b\n=c\n", `line 2 is "=c"`},
		"missing quote": {"app=\"x\n", "the value of app"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := filtertest.Decode(t, Factory(), withLabels(t, test.text, ""))
			if _, err := Factory().New(cfg, filter.Env{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: %v, want %q in it", err, test.want)
			}
		})
	}
	t.Run("missing file", func(t *testing.T) {
		cfg := &Config{LabelsFile: filepath.Join(t.TempDir(), "none")}
		if _, err := Factory().New(cfg, filter.Env{}); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("New: %v, want %v", err, os.ErrNotExist)
		}
	})
}

func TestRequestsDoNotAllocate(t *testing.T) {
	f, _ := filtertest.Build(t, Factory(), withLabels(t, podLabels, ""))
	s := f(providerWithStatus(statusOK))
	x := dubboRequest()
	ctx := t.Context()
	var serveErr error
	if n := testing.AllocsPerRun(100, func() {
		x.Request.Header.Reset()
		x.Request.Header.Add("service", "org.example.Shop")
		serveErr = errors.Join(serveErr, x.Serve(ctx, s))
	}); n != 0 || serveErr != nil {
		t.Errorf("Serve allocates %v times, %v; want 0", n, serveErr)
	}
}
