package resource

import (
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestXForwardedForTrust(t *testing.T) {
	for _, test := range []struct {
		text  string
		hop   int
		mode  config.ForwardedMode
		proto config.ForwardedProtoMode
		err   string
	}{
		{``, 1, config.ForwardedKeep, config.ForwardedProtoAdd, ""},
		{`xff_num_trusted_hops: 2`, 3, config.ForwardedKeep, config.ForwardedProtoAdd, ""},
		{`use_remote_address: {value: true}`, 0, config.ForwardedAppend, config.ForwardedProtoSet, ""},
		{`use_remote_address: {value: true} skip_xff_append: true`, 0, config.ForwardedKeep, config.ForwardedProtoSet, ""},
		{`use_remote_address: {value: true} xff_num_trusted_hops: 2`, 2, config.ForwardedAppend, config.ForwardedProtoAdd, ""},
		{`use_remote_address: {value: true} skip_xff_append: true xff_num_trusted_hops: 1`, 1, config.ForwardedKeep, config.ForwardedProtoAdd, ""},
		{`xff_num_trusted_hops: 101`, 0, "", "", "xff_num_trusted_hops: is 101, expected at most 100"},
	} {
		m := &hcmv3.HttpConnectionManager{}
		if err := prototext.Unmarshal([]byte(test.text), m); err != nil {
			t.Fatal(err)
		}
		r, h := &report{}, config.HTTP1Options{}
		fieldReader{report: r}.readForwarded(m, &h)
		got := ""
		if err := r.rejection(); err != nil {
			got = err.Error()
		}
		if got != test.err {
			t.Errorf("%q: the error is %q, want %q", test.text, got, test.err)
		}
		if h.XFFClientIndex != test.hop || h.XForwarded != test.mode || h.XForwardedProto != test.proto {
			t.Errorf("%q: XFFClientIndex = %d, XForwarded = %q, XForwardedProto = %q, want %d, %q, %q", test.text, h.XFFClientIndex, h.XForwarded, h.XForwardedProto, test.hop, test.mode, test.proto)
		}
	}
}
