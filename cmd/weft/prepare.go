package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/weft-proxy/weft/internal/logfile"
	"github.com/weft-proxy/weft/internal/unixaddr"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// verify returns the problems that start would find before it binds an address. The reasons to
// reject the file are errors; the errors and warnings that start would log are warnings. verify
// initializes a process and applies the file as start does, but changes no file and binds no
// address.
func verify(ctx context.Context, f startFlags, file *configjson.File) (problems document.Diagnostics) {
	p := &process{flags: f, checking: true}
	if err := p.verify(ctx, file); err != nil {
		problems = diagnosticsOf(document.Error, f.name(), err.Error())
	}
	if logged := strings.TrimSpace(p.logged.String()); logged != "" {
		problems = append(problems, diagnosticsOf(document.Warning, f.name(), logged)...)
	}
	return problems
}

func (p *process) verify(ctx context.Context, file *configjson.File) error {
	if _, err := initProcess(p, file); err != nil {
		return err
	}
	defer p.stop()
	if err := p.applyFirst(ctx, file); err != nil {
		return err
	}
	if path := file.Snapshot.Server.PIDFile; path != "" {
		if err := logfile.CheckFile(path); err != nil {
			return fmt.Errorf("pid file: %w", err)
		}
	}
	return nil
}

// diagnosticsOf returns a diagnostic without a position for each line of text.
func diagnosticsOf(severity document.Severity, name, text string) (diagnostics document.Diagnostics) {
	for line := range strings.SplitSeq(text, "\n") {
		diagnostics = append(diagnostics, document.Diagnostic{Severity: severity, File: name, Problem: line})
	}
	return diagnostics
}

// bindAddress is an address that start binds.
type bindAddress struct {
	owner     string // name in messages
	path      string // path of the setting in the file; "": none
	network   string // "tcp", "udp" or "unix"
	address   string
	reusePort bool // can be bound more than once (SO_REUSEPORT)
}

// bindAddresses returns the addresses that start binds. merged is the file with its
// static_resources.
func bindAddresses(file, merged *config.Snapshot) (addresses []bindAddress) {
	for i, l := range merged.Listeners {
		if !l.Bind {
			continue
		}
		c := bindAddress{owner: fmt.Sprintf("listener %q", l.Name), network: l.Network, address: l.Address, reusePort: l.ReusePort}
		if i < len(file.Listeners) && file.Listeners[i] == l {
			c.path = fmt.Sprintf("servers[0].listeners[%d].address", i)
		}
		addresses = append(addresses, c)
	}
	add := func(owner, path, address string) {
		network := "tcp"
		if unixaddr.Is(address) {
			network = "unix"
		}
		if address != "" {
			addresses = append(addresses, bindAddress{owner: owner, path: path, network: network, address: address})
		}
	}
	if merged.Admin != nil {
		add("the admin port", "admin.address", merged.Admin.Address)
	}
	add("the profiler", "pprof.port_value", merged.Profiler)
	if p := merged.Metrics.Prometheus; p != nil {
		add("the Prometheus sink", "metrics.sinks", p.Address)
	}
	if d := merged.Dubbo; d.Enable {
		add("the API of Dubbo services", "dubbo_registry", d.API)
		add("the socket of Dubbo services", "dubbo_registry", d.Socket)
	}
	add("xds_status", "xds_status.address", merged.Bootstrap.CSDSAddress)
	return addresses
}

// maxSocketPath is the maximum length in bytes of the path of a unix socket (unix(7)).
const maxSocketPath = 107

// bindConflicts reports the addresses that cannot be bound, alone or together.
func bindConflicts(file *configjson.File, addresses []bindAddress) (problems document.Diagnostics) {
	for i, c := range addresses {
		if c.network == "unix" && len(c.address) > maxSocketPath {
			problems = append(problems, file.Diagnose(document.Error, c.path,
				fmt.Sprintf("%s: the path of a unix socket has at most %d bytes, this one has %d", c.owner, maxSocketPath, len(c.address))))
		}
		for _, earlier := range addresses[:i] {
			if !c.conflictsWith(earlier) {
				continue
			}
			problems = append(problems, file.Diagnose(document.Error, c.path,
				fmt.Sprintf("%s cannot bind %s: %s binds %s", c.owner, c.address, earlier.owner, earlier.address)))
			break
		}
	}
	return problems
}

// conflictsWith reports whether start cannot bind both addresses. They conflict if they are equal,
// or if they have the same port and one is a wildcard address that covers the other. Addresses with
// port 0 do not conflict. If both have reusePort, they conflict only if their texts are equal.
func (c bindAddress) conflictsWith(other bindAddress) bool {
	if c.network != other.network {
		return false
	}
	if c.address == other.address && (c.network == "unix" || !strings.HasSuffix(c.address, ":0")) {
		return true
	}
	a, errA := netip.ParseAddrPort(withWildcardHost(c.address))
	b, errB := netip.ParseAddrPort(withWildcardHost(other.address))
	if errA != nil || errB != nil || c.network == "unix" || a.Port() != b.Port() || a.Port() == 0 || c.reusePort && other.reusePort {
		return false
	}
	return a.Addr().Unmap() == b.Addr().Unmap() || wildcardCovers(a.Addr(), b.Addr()) || wildcardCovers(b.Addr(), a.Addr())
}

// withWildcardHost adds the wildcard address to ":80", which means all IPv4 and IPv6 addresses.
func withWildcardHost(address string) string {
	if strings.HasPrefix(address, ":") {
		return "[::]" + address
	}
	return address
}

// wildcardCovers reports whether binding a also binds b: a is a wildcard address of b's family, or
// [::], which includes IPv4.
func wildcardCovers(a, b netip.Addr) bool {
	return a.IsUnspecified() && (a.Is6() || b.Unmap().Is4())
}
