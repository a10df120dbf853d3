package interop

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// idleDuration returns how long connections stay idle. It is longer than three heartbeats of two
// seconds, after which a consumer or a provider closes a connection without traffic.
func idleDuration() time.Duration {
	if os.Getenv("WEFT_INTEROP_LONG") != "" {
		return time.Minute
	}
	return 10 * time.Second
}

// runIdle leaves a consumer's connections idle, all at the same time, and checks that they are the
// same afterwards. The consumer's connections stay open only if Weft responds to its heartbeats.
// The connections between Wefts and to the provider stay open only if Weft sends heartbeats.
func runIdle(t *testing.T, consumer *peer, options string, providerTargets []target) {
	t.Helper()
	var targets []target // one element for each port
	var ports []int
	for _, tgt := range providerTargets {
		targets, ports = append(targets, tgt), append(ports, tgt.port)
	}
	for _, tgt := range providerTargets {
		if tgt.sidecars.problem != "" {
			tgt.pair.skipSubtest(t, "idle", twoWefts, tgt.sidecars.problem)
			continue
		}
		targets, ports = append(targets, tgt), append(ports, tgt.sidecars.ports[0])
	}
	consumer.send(t, fmt.Sprintf("idle 0 ports=%s seconds=%d %s", portList(ports), int(idleDuration().Seconds()), options))
	reports := make([][]call, len(targets))
	previous, after := make([][]string, len(targets)), make([][]string, len(targets))
	for {
		c := consumer.nextCall(t, waitTimeout+idleDuration())
		if c.End != "" {
			break
		}
		i, name := parseReportName(t, c, len(targets))
		c.text = strings.Replace(c.text, fmt.Sprintf("%d ", i), "", 1)
		reports[i] = append(reports[i], c)
		switch name {
		case "before":
			previous[i] = targets[i].upstreamConnections(t, ports[i])
		case "connections":
			after[i] = targets[i].upstreamConnections(t, ports[i])
		}
	}
	for i, tgt := range targets {
		path := twoWefts
		if ports[i] == tgt.port {
			path = direct
		}
		tgt.pair.compare(t, "idle", path, reports[i])
		if path == twoWefts {
			tgt.pair.runSubtest(t, "idle between and behind Wefts", path, func(t *testing.T) {
				if len(previous[i]) < 2 || !slices.Equal(previous[i], after[i]) {
					t.Errorf("connections of the Wefts: %q, before %[3]v of idle time %[2]q; want the same", after[i], previous[i], idleDuration())
				}
			})
		}
	}
}

// parseReportName splits the name of a report into the index of its port and the rest.
func parseReportName(t *testing.T, c call, portCount int) (i int, name string) {
	t.Helper()
	number, name, _ := strings.Cut(c.Name, " ")
	i, err := strconv.Atoi(number)
	if err != nil || i < 0 || i >= portCount {
		t.Fatalf("the report name %q does not begin with the index of a port", c.Name)
	}
	return i, name
}

// upstreamConnections returns the current connections of the sidecars for one of their ports, or
// none if the port is the provider's.
func (tgt target) upstreamConnections(t *testing.T, port int) []string {
	t.Helper()
	if port == tgt.port {
		return nil
	}
	conns := connections(t, tgt.sidecars.consumerSidecar, tgt.sidecars.providerSidecarPorts[0])
	return append(conns, connections(t, tgt.sidecars.providerSidecar, tgt.port)...)
}

// connections returns the established connections of a process to a port, as the addresses of both
// ends in the format of /proc/net/tcp.
func connections(t *testing.T, p *peer, port int) []string {
	t.Helper()
	inodes := sockets(t, p)
	table, err := os.Open("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	suffix := fmt.Sprintf(":%04X", port)
	const established = "01"
	var out []string
	for lines := bufio.NewScanner(table); lines.Scan(); {
		// number, local address, remote address, state, …, inode
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && strings.HasSuffix(fields[2], suffix) && fields[3] == established && inodes[fields[9]] {
			out = append(out, fields[1]+" "+fields[2])
		}
	}
	slices.Sort(out)
	return out
}

// sockets returns the inodes of a process's sockets.
func sockets(t *testing.T, p *peer) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]bool{}
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil {
			continue // the descriptor was closed after Glob
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}
