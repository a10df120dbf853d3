package resource

import (
	"testing"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weft-proxy/weft/pkg/config"
)

func TestWhomXForwardedForIsBelieved(t *testing.T) {
	for _, test := range []struct {
		text  string
		hop   int
		mode  config.ForwardedMode
		proto config.ProtoMode
		err   string
	}{
		{``, 1, config.ForwardedKeep, config.ProtoAsForwarded, ""},
		{`xff_num_trusted_hops: 2`, 3, config.ForwardedKeep, config.ProtoAsForwarded, ""},
		{`use_remote_address: {value: true}`, 0, config.ForwardedAppend, config.ProtoSet, ""},
		{`use_remote_address: {value: true} skip_xff_append: true`, 0, config.ForwardedKeep, config.ProtoSet, ""},
		{`use_remote_address: {value: true} xff_num_trusted_hops: 2`, 2, config.ForwardedAppend, config.ProtoAdd, ""},
		{`use_remote_address: {value: true} skip_xff_append: true xff_num_trusted_hops: 1`, 1, config.ForwardedKeep, config.ProtoAdd, ""},
		{`xff_num_trusted_hops: 101`, 0, "", "", "xff_num_trusted_hops: is 101, expected at most 100"},
	} {
		m := &hcmv3.HttpConnectionManager{}
		if err := prototext.Unmarshal([]byte(test.text), m); err != nil {
			t.Fatal(err)
		}
		r, h := &report{}, config.HTTP1Options{}
		place{report: r}.readForwarded(m, &h)
		got := ""
		if err := r.result(); err != nil {
			got = err.Error()
		}
		if got != test.err {
			t.Errorf("%q: the error is %q, want %q", test.text, got, test.err)
		}
		if h.ClientHop != test.hop || h.XForwarded != test.mode || h.ForwardedProto != test.proto {
			t.Errorf("%q: the client is at %d, the fields are %q and %q; want %d, %q, %q", test.text, h.ClientHop, h.XForwarded, h.ForwardedProto, test.hop, test.mode, test.proto)
		}
	}
}
