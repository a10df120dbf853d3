package nacos

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-proxy/weft/test/child"
)

// Peer is a process with Dubbo's own Nacos registry client. Only the test's goroutine may call its
// methods.
type Peer struct {
	t       testing.TB
	process *child.Process
}

// StartPeer runs a peer until the end of the test. module is "dubbo27" or "dubbo3"; group is the
// Nacos group of its services.
func (s *Server) StartPeer(t testing.TB, module, group string) *Peer {
	t.Helper()
	buildDir := filepath.Join(os.Getenv(dirEnv), module)
	home := t.TempDir() // Nacos's client writes logs and caches into the home directory
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"--add-opens=java.base/java.lang=ALL-UNNAMED", // for the code that Dubbo 2.7 generates
		"-Duser.home="+home, "-Djava.net.preferIPv4Stack=true", child.JavaHosts(t),
		"-cp", filepath.Join(buildDir, module+".jar")+":"+filepath.Join(buildDir, "lib", "*"),
		"weft.Peer", "nacos://"+s.address+"?group="+group)
	return &Peer{t, child.StartInteractive(t, "Dubbo's registry of "+module, cmd)}
}

// Send sends the peer a command: "register", "unregister" or "subscribe", with a URL.
func (p *Peer) Send(command, url string) {
	p.t.Helper()
	if err := p.process.Send(command + " " + url); err != nil {
		p.t.Fatal(err)
	}
}

// AwaitProviders waits until the peer reports a list of provider URLs for which matches returns
// true.
func (p *Peer) AwaitProviders(label string, matches func(urls []string) bool) {
	p.t.Helper()
	deadline := time.After(waitTimeout)
	last := "nothing"
	for {
		select {
		case line, ok := <-p.process.Lines():
			if !ok {
				p.t.Fatalf("no %s: the peer has exited; last report: %s", label, last)
			}
			fields := strings.Fields(line)
			if len(fields) > 0 && fields[0] == "providers" && matches(fields[1:]) {
				return
			}
			last = line
		case <-deadline:
			p.t.Fatalf("no %s within %v; last report: %s", label, waitTimeout, last)
		}
	}
}
