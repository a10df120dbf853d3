package inspect

import (
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-proxy/weft/pkg/network/credential"
)

// TestEnvoyCerts verifies the view with values that Envoy 1.40 printed for such certificates.
func TestEnvoyCerts(t *testing.T) {
	now := time.Date(2026, 11, 23, 23, 4, 20, 0, time.UTC)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(0x5ab),
		NotBefore:    now.Add(-10 * time.Second), NotAfter: now.Add(-10*time.Second + 30*24*time.Hour).In(time.FixedZone("", 3600)),
		DNSNames: []string{"*.d.test"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "z"}}, IPAddresses: []net.IP{net.IPv6loopback, net.IPv4(10, 0, 0, 1)},
		EmailAddresses: []string{"q@x.test"}, // Envoy does not list it
	}
	expired := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.Add(-time.Hour)}
	got, err := json.MarshalIndent(NewEnvoyCerts([]credential.Certificates{
		{Local: leaf, LocalPath: "/chain3.pem"}, {Authorities: []*x509.Certificate{expired}}, {},
	}, now), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "certificates": [
  {
   "ca_cert": [],
   "cert_chain": [
    {
     "path": "/chain3.pem",
     "serial_number": "05ab",
     "subject_alt_names": [
      {
       "dns": "*.d.test"
      },
      {
       "uri": "spiffe://z"
      },
      {
       "ip_address": "::1"
      },
      {
       "ip_address": "10.0.0.1"
      }
     ],
     "days_until_expiration": "29",
     "valid_from": "2026-11-23T23:04:10Z",
     "expiration_time": "2026-12-23T23:04:10Z"
    }
   ]
  },
  {
   "ca_cert": [
    {
     "path": "\u003cinline\u003e",
     "serial_number": "01",
     "subject_alt_names": [],
     "days_until_expiration": "0",
     "valid_from": "2025-11-23T23:04:20Z",
     "expiration_time": "2026-11-23T22:04:20Z"
    }
   ],
   "cert_chain": []
  },
  {
   "ca_cert": [],
   "cert_chain": []
  }
 ]
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
