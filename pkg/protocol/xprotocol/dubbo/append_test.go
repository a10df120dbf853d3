package dubbo

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weft-proxy/weft/pkg/protocol"
	"github.com/weft-proxy/weft/pkg/protocol/xprotocol"
)

// TestChangedRequest verifies that changed fields are written, and that all other bytes stay the
// same.
func TestChangedRequest(t *testing.T) {
	body := func(path, version, method string, attachments ...string) []byte {
		return append(hessianStrings("2.0.2", path, version, method, "I"), append([]byte{0x91}, mapOf(attachments...)...)...)
	}
	full := body("A", "1.0.0", "m", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")
	bare := body("A", "1.0.0", "m")
	mixed := slices.Clip(append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), "M\x01t\x01l\x71\x07[string\x01x\x01i\x97\x01k\x01v\x01nN\x91\x01y\x01r\x51\x91Z!"...))
	generic := func(method string) []byte {
		return append(append([]byte(genericHead), hessianStrings(method)...), "\x70\x07[string\x70\x07[objectH\x07generic\x04trueZ"...)
	}
	for _, c := range []struct {
		name   string
		body   []byte
		change func(h *protocol.Header)
		want   []byte
	}{
		{"set", full, func(h *protocol.Header) { h.Set("a", "one") },
			body("A", "1.0.0", "m", "a", "one", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"set in another case", full, func(h *protocol.Header) { h.Set("A", "one") },
			body("A", "1.0.0", "m", "a", "one", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"set to an empty value", full, func(h *protocol.Header) { h.Set("a", "") },
			body("A", "1.0.0", "m", "a", "", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"remove", full, func(h *protocol.Header) { h.Del("a") },
			body("A", "1.0.0", "m", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"add", full, func(h *protocol.Header) { h.Add("c", "3"); h.Add("ü", "😀") },
			body("A", "1.0.0", "m", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2", "c", "3", "ü", "😀")},
		{"remove and add", full, func(h *protocol.Header) { h.Del("a"); h.Add("a", "3") },
			body("A", "1.0.0", "m", "a", "3", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"add a field of the same name", full, func(h *protocol.Header) { h.Add("b", "3") },
			body("A", "1.0.0", "m", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2", "b", "3")},
		{"a long value", bare, func(h *protocol.Header) { h.Add("c", strings.Repeat("x", 100_000)) },
			body("A", "1.0.0", "m", "c", strings.Repeat("x", 100_000))},

		{"service", full, func(h *protocol.Header) { h.Set("service", "B") },
			body("B", "1.0.0", "m", "a", "1", "path", "B", "interface", "B", "version", "1.0.0", "group", "g", "b", "2")},
		{"service without attachments", bare, func(h *protocol.Header) { h.Set("service", "B") }, body("B", "1.0.0", "m")},
		{"service with a path before it", body("ctx/A", "1.0.0", "m", "interface", "A", "path", "ctx/A"), func(h *protocol.Header) { h.Set("service", "B") },
			body("ctx/B", "1.0.0", "m", "interface", "B", "path", "ctx/B")},
		{"service with another path", body("users", "1.0.0", "m", "interface", "A", "path", "users"), func(h *protocol.Header) { h.Set("service", "B") },
			body("B", "1.0.0", "m", "interface", "B", "path", "B")},
		{"service and path", full, func(h *protocol.Header) { h.Set("service", "B"); h.Set("path", "x") },
			body("B", "1.0.0", "m", "a", "1", "path", "x", "interface", "B", "version", "1.0.0", "group", "g", "b", "2")},
		{"service, without path", full, func(h *protocol.Header) { h.Set("service", "B"); h.Del("path") },
			body("B", "1.0.0", "m", "a", "1", "interface", "B", "version", "1.0.0", "group", "g", "b", "2")},
		{"method", full, func(h *protocol.Header) { h.Set("method", "n") },
			body("A", "1.0.0", "n", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "group", "g", "b", "2")},
		{"version", full, func(h *protocol.Header) { h.Set("version", "2") },
			body("A", "2", "m", "a", "1", "path", "A", "interface", "A", "version", "2", "group", "g", "b", "2")},
		{"version without an attachment", bare, func(h *protocol.Header) { h.Set("version", "2") }, body("A", "2", "m")},
		{"no version", full, func(h *protocol.Header) { h.Del("version") },
			body("A", "", "m", "a", "1", "path", "A", "interface", "A", "group", "g", "b", "2")},
		{"a first version", body("A", "", "m"), func(h *protocol.Header) { h.Set("version", "2") }, body("A", "2", "m")},
		{"group", full, func(h *protocol.Header) { h.Set("group", "h") },
			body("A", "1.0.0", "m", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "group", "h", "b", "2")},
		{"no group", full, func(h *protocol.Header) { h.Del("group") },
			body("A", "1.0.0", "m", "a", "1", "path", "A", "interface", "A", "version", "1.0.0", "b", "2")},
		{"a first group", bare, func(h *protocol.Header) { h.Set("group", "h") }, body("A", "1.0.0", "m", "group", "h")},
		{"a second service is rejected", bare, func(h *protocol.Header) { h.Add("service", "B"); h.Add("k", "v") }, body("A", "1.0.0", "m", "k", "v")},
		{"attachments with names of routing fields", body("A", "1.0.0", "m", "Service", "x", "method", "y", "a", "1"), func(h *protocol.Header) { h.Del("a") },
			body("A", "1.0.0", "m", "Service", "x", "method", "y")},

		{"add to null", append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), 'N'), func(h *protocol.Header) { h.Add("k", "v") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), mapOf("k", "v")...)},
		{"add to missing attachments", hessianStrings("2.0.2", "A", "1.0.0", "m", ""), func(h *protocol.Header) { h.Add("k", "v") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), mapOf("k", "v")...)},
		{"other attachments and the bytes after them", mixed, func(h *protocol.Header) { h.Del("k"); h.Add("new", "1") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), "M\x01t\x01l\x71\x07[string\x01x\x01i\x97\x01nN\x91\x01y\x01r\x51\x91\x03new\x011Z!"...)},
		{"number set to the same value", mixed, func(h *protocol.Header) { h.Set("i", "7"); h.Set("k", "w") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), "M\x01t\x01l\x71\x07[string\x01x\x01i\x97\x01k\x01w\x01nN\x91\x01y\x01r\x51\x91Z!"...)},
		{"changed number and null", mixed, func(h *protocol.Header) { h.Set("i", "8"); h.Set("n", "x") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", ""), "M\x01t\x01l\x71\x07[string\x01x\x01i\x018\x01k\x01v\x01n\x01x\x91\x01y\x01r\x51\x91Z!"...)},
		{"map by reference", append(hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), "H\x01k\x01vZQ\x90"...), func(h *protocol.Header) { h.Set("k", "w") },
			append(hessianStrings("2.0.2", "A", "1.0.0", "m", "Ljava/util/Map;"), "H\x01k\x01vZH\x01k\x01wZ"...)},
		{"the method of a generic call", generic("m"), func(h *protocol.Header) { h.Set("method", "n") }, generic("n")},
	} {
		t.Run(c.name, func(t *testing.T) {
			frame := newFrame(twoWay, 0, c.body)
			r := readRequest(t, frame)
			c.change(&r.Header)
			got, err := Codec{}.AppendRequest([]byte("before"), frame, &r.Request, &r.view, 0)
			want := append([]byte("before"), newFrame(twoWay, 0, c.want)...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("appended as %q, %v\nwant %q", got, err, want)
			}
		})
	}
}

// TestFieldsAddedInOtherOrder verifies the result if a filter removes all attachments and adds them
// in another order.
func TestFieldsAddedInOtherOrder(t *testing.T) {
	frame := findCapture(t, "03")
	r := readRequest(t, frame)
	want := fields(&r.Header)
	for _, name := range []string{"timeout", "async", "x-trace", "environment", "path", "interface", "version", "group"} {
		value := strings.Clone(r.Header.Get(name))
		r.Header.Del(name)
		r.Header.Add(name, value)
	}
	frame, err := Codec{}.AppendRequest(nil, frame, &r.Request, &r.view, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fields(&readRequest(t, frame).Header); got != want {
		t.Errorf("fields after the change %s\nwant %s", got, want)
	}
}

func TestUnsupportedChanges(t *testing.T) {
	addMany := func(h *protocol.Header) {
		for range maxFields + 1 {
			h.Add("k", "v")
		}
	}
	for _, c := range []struct {
		name   string
		frame  []byte
		change func(h *protocol.Header)
		want   protocol.Reason
	}{
		{"another serialization", newFrame(flagRequest|flagTwoWay|23, 0, []byte{1, 2, 3}), func(h *protocol.Header) { h.Add("k", "v") }, protocol.NotImplemented},
		{"no service", requestOf(mapOf()), func(h *protocol.Header) { h.Del("service") }, protocol.Internal},
		{"no method", requestOf(mapOf()), func(h *protocol.Header) { h.Set("method", "") }, protocol.Internal},
		{"too many fields", requestOf(mapOf()), addMany, protocol.HeaderTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readRequest(t, c.frame)
			c.change(&r.Header)
			got, err := Codec{}.AppendRequest([]byte("before"), c.frame, &r.Request, &r.view, 0)
			var fault *protocol.Fault
			if !errors.As(err, &fault) || fault.Reason != c.want || string(got) != "before" {
				t.Errorf("appended as %q, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestChangedResponse(t *testing.T) {
	add := func(h *protocol.Header) { h.Add("k", "v") }
	addAndRemove := func(h *protocol.Header) { h.Add("k", "v"); h.Del("k") }
	value := hessianStrings("value")
	for _, c := range []struct {
		name   string
		body   []byte
		change func(h *protocol.Header)
		want   []byte
	}{
		{"set", slices.Concat([]byte{0x94}, value, mapOf("a", "1", "version", "2"), []byte{'N'}), func(h *protocol.Header) { h.Set("version", "3"); add(h) },
			slices.Concat([]byte{0x94}, value, mapOf("a", "1", "version", "3", "k", "v"), []byte{'N'})},
		{"remove", slices.Concat([]byte{0x94}, value, mapOf("a", "1")), func(h *protocol.Header) { h.Del("a") }, slices.Concat([]byte{0x94}, value, mapOf())},
		{"add to null with attachments", slices.Concat([]byte{0x95}, mapOf("a", "1")), add, slices.Concat([]byte{0x95}, mapOf("a", "1", "k", "v"))},
		{"add to an exception with attachments", slices.Concat([]byte{0x93}, value, mapOf("a", "1")), add, slices.Concat([]byte{0x93}, value, mapOf("a", "1", "k", "v"))},
		{"add to a value", slices.Concat([]byte{0x91}, value), add, slices.Concat([]byte{0x94}, value, mapOf("k", "v"))},
		{"add to a value with bytes after it", slices.Concat([]byte{0x91}, value, []byte{'N'}), add, slices.Concat([]byte{0x94}, value, mapOf("k", "v"), []byte{'N'})},
		{"add to null", []byte{0x92}, add, slices.Concat([]byte{0x95}, mapOf("k", "v"))},
		{"add to an exception", slices.Concat([]byte{0x90}, value), add, slices.Concat([]byte{0x93}, value, mapOf("k", "v"))},
		{"the kind in a long form", slices.Concat([]byte{'I', 0, 0, 0, 1}, value), add, slices.Concat([]byte{0x94}, value, mapOf("k", "v"))},
		{"add and remove", slices.Concat([]byte{0x91}, value), addAndRemove, slices.Concat([]byte{0x94}, value, mapOf())},
	} {
		t.Run(c.name, func(t *testing.T) {
			frame := newFrame(responseFlags, statusOK, c.body)
			r := readResponse(t, frame)
			c.change(&r.Header)
			got, err := Codec{}.AppendResponse([]byte("before"), frame, r, &xprotocol.FrameView{})
			want := append([]byte("before"), newFrame(responseFlags, statusOK, c.want)...)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("appended as %q, %v\nwant %q", got, err, want)
			}
		})
	}
}

// TestErrorResponsesStayUnchanged verifies that a changed field never replaces an error response.
func TestErrorResponsesStayUnchanged(t *testing.T) {
	for _, frame := range [][]byte{
		newFrame(responseFlags, 70, hessianStrings("what is wrong")), newFrame(responseFlags, 31), newFrame(23, 100, []byte{1, 2, 3}),
	} {
		r := readResponse(t, frame)
		r.Header.Add("k", "v")
		got, err := Codec{}.AppendResponse(nil, frame, r, &xprotocol.FrameView{})
		if err != nil || !bytes.Equal(got, frame) {
			t.Errorf("appended as %q, %v, want %q", got, err, frame)
		}
	}
}

func TestOtherSerializationCannotBeChanged(t *testing.T) {
	frame := newFrame(23, statusOK, []byte{1, 2, 3})
	r := readResponse(t, frame)
	r.Header.Add("k", "v")
	got, err := Codec{}.AppendResponse(nil, frame, r, &xprotocol.FrameView{})
	if protocol.ReasonOf(err) != protocol.NotImplemented || len(got) != 0 {
		t.Errorf("AppendResponse = %q, %v; want nothing with NotImplemented", got, err)
	}
}
