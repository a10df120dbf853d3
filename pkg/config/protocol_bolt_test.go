package config

import "testing"

func TestBoltAcceptsBothVersions(t *testing.T) {
	for _, test := range []struct {
		caller, host Protocol
		carried      bool
		want         Protocol
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
		if got := test.caller.CanSendAs(test.host); got != test.carried {
			t.Errorf("%s.CarriedBy(%q) = %v, want %v", test.caller, test.host, got, test.carried)
		}
		if got := test.caller.UpstreamProtocol(test.host); got != test.want {
			t.Errorf("%s.SentIn(%q) = %s, want %s", test.caller, test.host, got, test.want)
		}
	}
}
