package proxy

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weft-proxy/weft/pkg/config"
)

// TestEveryOptionOfAnEngineCounts: a listener whose engines are to work otherwise gets
// new ones, whatever option it is that changed.
func TestEveryOptionOfAnEngineCounts(t *testing.T) {
	replaced := []string{"RouteTable", "StreamFilters"} // under the engine
	listener := func(p config.Proxy) *config.Listener {
		return &config.Listener{FilterChains: []*config.FilterChain{{Proxy: &p}}}
	}
	before := config.Proxy{Downstream: []config.Protocol{config.Auto}}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Proxy]()) {
		for i := range options(field.Type) {
			after := before
			name := field.Name
			v := reflect.ValueOf(&after).Elem().FieldByIndex(field.Index)
			if v.Kind() == reflect.Struct {
				name += "." + v.Type().Field(i).Name
				v = v.Field(i)
			}
			change(t, name, v)
			if same, want := sameEngine(listener(before), listener(after)), slices.Contains(replaced, field.Name); same != want {
				t.Errorf("%s is another: sameEngine = %v, want %v", name, same, want)
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
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("%s is a %s, which this test does not know", name, v.Kind())
	}
}
