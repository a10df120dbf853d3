package dubbo

import (
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/weft-proxy/weft/test/netns"
)

// blockAddress drops all packets from and to an address of this network until restore is called or
// the test ends.
func blockAddress(t *testing.T, address string) (restore func()) {
	t.Helper()
	netns.RequirePrograms(t, "nft")
	table := "cut-" + strings.ReplaceAll(address, ".", "-")
	rules := "table ip " + table + " { chain c { type filter hook output priority 0; ip daddr " + address + " drop; ip saddr " + address + " drop; }; }\n"
	if out, err := nft(rules); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	restore = sync.OnceFunc(func() {
		if out, err := nft("delete table ip " + table); err != nil {
			t.Errorf("nft: %v: %s", err, out)
		}
	})
	t.Cleanup(restore)
	return restore
}

// nft loads rules into the network namespace of the tests.
func nft(rules string) ([]byte, error) {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	return cmd.CombinedOutput()
}
