package workload

import (
	"encoding/base64"
	"strings"
	"testing"
)

func reviews() Workload {
	return Workload{
		Instance: "reviews-v1-7d8f-x2z", Name: "reviews-v1", Namespace: "default", Cluster: "Kubernetes",
		Service: "reviews", Revision: "v1", App: "reviews", Version: "v1",
		Owner: "kubernetes://apis/apps/v1/namespaces/default/deployments/reviews-v1",
	}
}

// golden is the metadata of reviews, as a protobuf serializer with sorted map keys writes it.
const golden = "ChoKCkNMVVNURVJfSUQSDBoKS3ViZXJuZXRlcwqLAQoGTEFCRUxTEoABKn4KEAoDYXBwEgkaB3Jldmlld3MKLAofc2VydmljZS5pc3Rpby5pby9jYW5vbmljYWwtbmFtZRIJGgdyZXZpZXdzCisKI3NlcnZpY2UuaXN0aW8uaW8vY2Fub25pY2FsLXJldmlzaW9uEgQaAnYxCg8KB3ZlcnNpb24SBBoCdjEKHQoETkFNRRIVGhNyZXZpZXdzLXYxLTdkOGYteDJ6ChYKCU5BTUVTUEFDRRIJGgdkZWZhdWx0Ck4KBU9XTkVSEkUaQ2t1YmVybmV0ZXM6Ly9hcGlzL2FwcHMvdjEvbmFtZXNwYWNlcy9kZWZhdWx0L2RlcGxveW1lbnRzL3Jldmlld3MtdjEKHQoNV09SS0xPQURfTkFNRRIMGgpyZXZpZXdzLXYx"

func TestMetadataIsBase64Struct(t *testing.T) {
	w := reviews()
	if got := w.Metadata(); got != golden {
		t.Errorf("Metadata() = %s, want %s", got, golden)
	}
	for _, text := range []string{golden, strings.TrimRight(golden, "=")} {
		if got, err := ParseMetadata(text); err != nil || got != w {
			t.Errorf("ParseMetadata = %+v, %v, want %+v", got, err, w)
		}
	}
}

func TestMetadataOmitsUnknown(t *testing.T) {
	w := Workload{Namespace: "default"}
	if got, err := ParseMetadata(w.Metadata()); err != nil || got != w {
		t.Errorf("ParseMetadata = %+v, %v, want %+v", got, err, w)
	}
	if got, err := ParseMetadata(""); err != nil || got != (Workload{}) {
		t.Errorf("ParseMetadata of an empty value = %+v, %v; want no fields", got, err)
	}
}

func TestParseMetadataInvalid(t *testing.T) {
	pack := func(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
	for _, tt := range []struct {
		name, value string
		want        Workload
		wantErr     bool
	}{
		{name: "not base64", value: "a*b", wantErr: true},
		{name: "truncated", value: pack([]byte{0x0a, 0x20, 0x0a}), wantErr: true},
		{name: "unterminated group", value: pack([]byte{0x0b}), wantErr: true},
		{name: "too long", value: strings.Repeat("A", MaxMetadata+1), wantErr: true},
		{name: "semicolon", value: pack(appendText(nil, keyName, "a;b"))},
		{name: "part too long", value: pack(appendText(nil, keyName, strings.Repeat("a", maxPartLen+1)))},
		{name: "not UTF-8", value: pack(appendText(nil, keyName, "\xff"))},
		{name: "label outside LABELS", value: pack(appendText(nil, labelApp, "shop"))},
		{name: "unknown key", value: pack(appendText(appendText(nil, "PLATFORM", "x"), keyName, "shop")), want: Workload{Name: "shop"}},
		{name: "wrong value type", value: pack(appendEntry(nil, keyName, 2, []byte("shop")))},
		{name: "duplicate key", value: pack(appendText(appendText(nil, keyName, "a"), keyName, "b")), want: Workload{Name: "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseMetadata(tt.value)
			if (err != nil) != tt.wantErr || got != tt.want {
				t.Errorf("ParseMetadata = %+v, %v, want %+v, an error: %v", got, err, tt.want, tt.wantErr)
			}
		})
	}
}

func TestTextRoundTrip(t *testing.T) {
	w := reviews()
	w.Instance, w.Owner = "", ""
	if got, ok := Parse(w.Text()); !ok || got != w {
		t.Errorf("Parse(%q) = %+v, %v; want %+v", w.Text(), got, ok, w)
	}
	// In the metadata of endpoints, Cluster is the last part.
	want := Workload{Name: "reviews-0", Namespace: "default", Service: "reviews", Revision: "v1", Cluster: "Kubernetes"}
	if got, ok := Parse("reviews-0;default;reviews;v1;Kubernetes"); !ok || got != want {
		t.Errorf("Parse of an endpoint's text = %+v, %v; want %+v", got, ok, want)
	}
	if got, ok := Parse("reviews-0;default;reviews;v1"); ok {
		t.Errorf("Parse of four parts = %+v, true; want false", got)
	}
}

func FuzzParseMetadata(f *testing.F) {
	f.Add(golden)
	f.Add("")
	f.Add("CgA=")
	f.Fuzz(func(t *testing.T, value string) {
		w, err := ParseMetadata(value)
		if err != nil {
			return
		}
		reparsed, err := ParseMetadata(w.Metadata())
		if err != nil || reparsed != w {
			t.Errorf("ParseMetadata(Metadata()) of %+v = %+v, %v; want the same", w, reparsed, err)
		}
		w.Instance, w.Owner = "", ""
		if got, ok := Parse(w.Text()); !ok || got != w {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", w.Text(), got, ok, w)
		}
	})
}
