package e2e

import (
	"testing"
)

// TestBoltVersions verifies that each connection uses the version of its first frame, and that its
// requests go to hosts in that version, even if upstream_protocol is bolt.
func TestBoltVersions(t *testing.T) {
	for name, upstream := range map[string]string{
		"client protocol": `"downstream_protocol": "bolt"`,
		"bolt listener":   `"downstream_protocol": "bolt", "upstream_protocol": "bolt"`,
		"version 2 only":  `"downstream_protocol": "boltv2", "upstream_protocol": "bolt"`,
	} {
		t.Run(name, func(t *testing.T) {
			versions := []string{"boltv2", "bolt", "boltv2"}
			if name == "version 2 only" {
				versions = []string{"boltv2"}
			}
			for _, version := range versions {
				p := findProtocol(t, version)
				e := loadExample(t, "bolt_client.json")
				e.replace(`"downstream_protocol": "bolt,boltv2",`, upstream+",")
				e.replace(`"upstream_protocol": "Auto",`, "")
				e.replace(e.address("2746"), startRPCUpstream(t, p))
				w := e.run("bolt_client.json")
				checkCalls(t, e.address("2745"), p)
				w.stdout.await(t, 0, map[string]string{"bolt": " bolt/1 ", "boltv2": " bolt/2 "}[version]) // access log
			}
		})
	}
}
