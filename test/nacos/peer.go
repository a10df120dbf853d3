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

// Peer is Dubbo's own registry of the type nacos, in a process of its own. Its methods are
// for the goroutine of the test.
type Peer struct {
	t       testing.TB
	process *child.Process
}

// StartPeer runs a peer until the end of the test. kind is "dubbo27" or "dubbo3", group
// where in Nacos everything is.
func (s *Server) StartPeer(t testing.TB, kind, group string) *Peer {
	t.Helper()
	built := filepath.Join(os.Getenv(folderKey), kind)
	folder := t.TempDir() // Nacos's client writes logs, and remembers lists, in the home folder
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"--add-opens=java.base/java.lang=ALL-UNNAMED", // for the code that Dubbo 2.7 makes
		"-Duser.home="+folder, "-Djava.net.preferIPv4Stack=true", child.JavaHosts(t),
		"-cp", filepath.Join(built, kind+".jar")+":"+filepath.Join(built, "lib", "*"),
		"weft.Peer", "nacos://"+s.address+"?group="+group)
	return &Peer{t, child.Talk(t, "Dubbo's registry of "+kind, cmd)}
}

// Tell has the peer do something: "register", "unregister" or "subscribe", with a URL.
func (p *Peer) Tell(what, url string) {
	p.t.Helper()
	if err := p.process.Say(what + " " + url); err != nil {
		p.t.Fatal(err)
	}
}

// Await waits until the peer is told of a list of providers that is as wanted; they are
// URLs.
func (p *Peer) Await(what string, wanted func(urls []string) bool) {
	p.t.Helper()
	limit := time.After(patience)
	last := "nothing"
	for {
		select {
		case line, ok := <-p.process.Lines():
			if !ok {
				p.t.Fatalf("no %s: the peer has ended, and said last: %s", what, last)
			}
			words := strings.Fields(line)
			if len(words) > 0 && words[0] == "providers" && wanted(words[1:]) {
				return
			}
			last = line
		case <-limit:
			p.t.Fatalf("no %s within %v; the peer said last: %s", what, patience, last)
		}
	}
}
