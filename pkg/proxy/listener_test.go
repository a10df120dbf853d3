package proxy

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestSameEngineComparesEveryOption: a listener whose connections are to be served otherwise
// gets new engines, whatever option it is that changed.
func TestSameEngineComparesEveryOption(t *testing.T) {
	replaced := []string{
		"Listener.Ingress", "Listener.MaxConnections", "Listener.AcceptRate", "Listener.AccessLogs", // while it runs
		"Listener.KeepAlive",                                                            // of connections to come
		"Listener.Network", "Listener.Address", "Listener.Bind", "FilterChain.UDPProxy", // by another listener
		"Listener.OriginalDst",                // of connections to come
		"Listener.KeepRedirected",             // the same
		"Listener.ReusePort", "Listener.Mark", // not at all, with a warning
		"Proxy.RouteTable", "Proxy.StreamFilters", "Proxy.Targets", "Proxy.CallerFields", "Proxy.ForwardedScheme", // under the engine
		"Listener.FilterChains", "Listener.DefaultChain", "Listener.InspectTimeout", "Listener.Inspection", "FilterChain.Name", "FilterChain.Match", // for connections to come
	}
	listener := func() (*config.Listener, *config.FilterChain, *config.Proxy) {
		p := &config.Proxy{Downstream: []config.Protocol{config.Auto}}
		c := &config.FilterChain{Proxy: p}
		return &config.Listener{FilterChains: []*config.FilterChain{c}}, c, p
	}
	for _, of := range []reflect.Type{reflect.TypeFor[config.Listener](), reflect.TypeFor[config.FilterChain](), reflect.TypeFor[config.Proxy]()} {
		for _, field := range reflect.VisibleFields(of) {
			for i := range options(field.Type) {
				before, _, _ := listener()
				after, chain, proxy := listener()
				v := map[string]reflect.Value{
					"Listener": reflect.ValueOf(after), "FilterChain": reflect.ValueOf(chain), "Proxy": reflect.ValueOf(proxy),
				}[of.Name()].Elem().FieldByIndex(field.Index)
				name := of.Name() + "." + field.Name
				wanted := slices.Contains(replaced, name)
				if v.Kind() == reflect.Struct {
					name += "." + v.Type().Field(i).Name
					v = v.Field(i)
				}
				change(t, name, v)
				if same := sameEngine(before, after, before.FilterChains[0], after.FilterChains[0]); same != wanted {
					t.Errorf("%s is another: sameEngine = %v, want %v", name, same, wanted)
				}
			}
		}
	}
}

// options is how many options there are in a field.
func options(t reflect.Type) int {
	if t.Kind() == reflect.Struct {
		return t.NumField()
	}
	return 1
}

// change makes v another value.
func change(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint16:
		v.SetUint(v.Uint() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			change(t, name, field)
		}
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("%s is a %s, which this test does not know", name, v.Kind())
	}
}
