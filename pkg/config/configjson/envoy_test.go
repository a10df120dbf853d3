package configjson

import (
	"reflect"
	"slices"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/weft-proxy/weft/pkg/config/document"
)

// TestBootstrapKeysAreComplete verifies that the schema contains every field of the bootstrap
// messages that it defines itself, in both JSON spellings. A new field of the API must get an
// effect, a warning or an error.
func TestBootstrapKeysAreComplete(t *testing.T) {
	message := (&bootstrapv3.Bootstrap{}).ProtoReflect().Descriptor()
	if count := checkKeys(t, "", message, reflect.TypeFor[rootJSON]()); count < 80 {
		t.Errorf("%d fields were checked, want at least 80", count)
	}
}

// checkKeys compares the keys of a struct with the fields of a message and returns the number of
// fields. It skips the messages that package xds parses.
func checkKeys(t *testing.T, path string, message protoreflect.MessageDescriptor, keys reflect.Type) (count int) {
	t.Helper()
	structKeys := document.Keys(reflect.New(keys).Interface())
	for i := range message.Fields().Len() {
		f := message.Fields().Get(i)
		count++
		name := string(f.Name())
		index := slices.IndexFunc(structKeys, func(k document.Key) bool { return k.Name == name || slices.Contains(k.Aliases, name) })
		if index < 0 {
			t.Errorf("field %s%s of %s: the schema has no such key", path, name, message.FullName())
			continue
		}
		k := &structKeys[index]
		if json := f.JSONName(); k.Name != json && !slices.Contains(k.Aliases, json) {
			t.Errorf("field %s%s: the schema does not accept the name %s", path, name, json)
		}
		elemType := k.Type
		for elemType.Kind() == reflect.Pointer || elemType.Kind() == reflect.Slice {
			elemType = elemType.Elem()
		}
		isStruct := elemType.Kind() == reflect.Struct && elemType != reflect.TypeFor[document.Node]()
		if isStruct && f.Message() != nil && f.Message().FullName() != "google.protobuf.Any" {
			count += checkKeys(t, path+name+".", f.Message(), elemType)
		}
	}
	return count
}
