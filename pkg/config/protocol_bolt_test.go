package config

import "testing"

func TestBoltAcceptsBothVersions(t *testing.T) {
	for _, test := range []struct {
		downstream, host Protocol
		canSend          bool
		want             Protocol
	}{
		{Bolt, Bolt, true, Bolt},
		{BoltV2, Bolt, true, BoltV2},
		{BoltV2, BoltV2, true, BoltV2},
		{Bolt, BoltV2, false, BoltV2},
		{Dubbo, Bolt, false, Bolt},
		{BoltV2, "", true, BoltV2},
		{BoltV2, Auto, true, BoltV2},
		{HTTP1, HTTP2, true, HTTP2},
	} {
		if got := test.downstream.CanSendAs(test.host); got != test.canSend {
			t.Errorf("%s.CanSendAs(%q) = %v, want %v", test.downstream, test.host, got, test.canSend)
		}
		if got := test.downstream.UpstreamProtocol(test.host); got != test.want {
			t.Errorf("%s.UpstreamProtocol(%q) = %s, want %s", test.downstream, test.host, got, test.want)
		}
	}
}
