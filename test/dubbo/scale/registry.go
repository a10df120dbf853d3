package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// server is a ZooKeeper.
type server struct {
	address, dir string
	cmd          *exec.Cmd
}

// startServer runs Debian's ZooKeeper, as its defaults are but for where it is.
func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("", "weft-scale-zookeeper")
	if err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s := &server{address: address, dir: dir}
	file := filepath.Join(dir, "zoo.cfg")
	text := "dataDir=" + dir + "\nclientPort=" + port + "\nclientPortAddress=127.0.0.1\ntickTime=2000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, "java", "-Xmx512m", "-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return s, s.cmd.Start()
}

// jar is where Debian's package zookeeper has the server.
const jar = "/usr/share/java/zookeeper.jar"

// missing says what there is not on this machine; nil: nothing.
func missing() error {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	_, err := os.Stat(jar)
	return err
}

// end removes the server with its data.
func (s *server) end() error {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()         // it was killed
	return os.RemoveAll(s.dir)
}

// freeAddress is one of loopback that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// registry is a session with the server that provides what Weft subscribes to.
type registry struct{ conn *zk.Conn }

// service is the interface of a number.
func service(i int) string { return fmt.Sprintf("com.example.service.Number%d", i) }

// providers is the folder of a service's providers.
func providers(name string) string { return "/dubbo/" + name + "/providers" }

// node is what a provider is registered as: a URL as Dubbo's are, of a process of its own.
func node(name, address string) string {
	started := 1_700_000_000_000 + int64(crc32.ChecksumIEEE([]byte(name+address)))
	return url.QueryEscape("dubbo://" + address + "/" + name + "?anyhost=true&application=scale&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false" +
		"&interface=" + name + "&methods=create,find,remove,update&pid=" + strconv.FormatInt(started%32768, 10) + "&release=2.7.23&revision=1.0.0&side=provider" +
		"&timeout=3000&timestamp=" + strconv.FormatInt(started, 10) + "&version=1.0.0")
}

// fill connects to the server and registers the providers.
func (s *server) fill(ctx context.Context, size sizes) (*registry, error) {
	conn, _, err := zk.Connect([]string{s.address}, 30*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	r := &registry{conn}
	for _, err = conn.Create("/dubbo", nil, 0, zk.WorldACL(zk.PermAll)); err != nil; _, err = conn.Create("/dubbo", nil, 0, zk.WorldACL(zk.PermAll)) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ZooKeeper does not serve: %w", err)
		}
	}
	return r, atOnce(size.subscribed, func(i int) error {
		name := service(i)
		operations := []any{folder("/dubbo/" + name), folder(providers(name))}
		for p := range size.providers {
			operations = append(operations, &zk.CreateRequest{Path: providers(name) + "/" + node(name, address(i, p)), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		}
		_, err := conn.Multi(operations...)
		return err
	})
}

func folder(path string) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)}
}

// address is of the p-th provider of a service.
func address(i, p int) string {
	return fmt.Sprintf("10.%d.%d.%d:20880", p, i>>8, i&255)
}

// create registers a provider, and the folders above it, as a registration does.
func (r *registry) create(name, at string) error {
	folders := []string{"/dubbo/" + name, providers(name)}
	for _, path := range folders {
		if _, err := r.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	_, err := r.conn.Create(providers(name)+"/"+node(name, at), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	return err
}

// read reads what a subscription reads, one after the other.
func (r *registry) read(name string) error {
	for _, path := range []string{
		providers(name), "/dubbo/" + name + "/configurators", "/dubbo/" + name + "/routers", "/dubbo/mapping/" + name,
		"/dubbo/config/dubbo/" + name + ":1.0.0:.configurators", "/dubbo/config/dubbo/" + name + ":1.0.0:.condition-router",
	} {
		if _, _, _, err := r.conn.ExistsW(path); err != nil {
			return err
		}
	}
	_, _, err := r.conn.Children(providers(name))
	return err
}

// change registers providers, one after the other, and times from ZooKeeper's event, which
// a watch of its own is told, until Weft uses each.
func (r *registry) change(ctx context.Context, w *weft, s sizes) error {
	var took times
	before := w.cpu()
	for n := range s.changes {
		i := n * 7 % s.subscribed
		name := service(i)
		_, _, events, err := r.conn.ChildrenW(providers(name))
		if err != nil {
			return err
		}
		at := "10.200." + strconv.Itoa(n>>8) + "." + strconv.Itoa(n&255) + ":20880"
		told := make(chan time.Time, 1)
		go func() {
			<-events
			told <- time.Now()
		}()
		if _, err := r.conn.Create(providers(name)+"/"+node(name, at), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		for {
			page, err := w.get(ctx, w.admin, "/clusters?name="+url.QueryEscape(name+":1.0.0"))
			if err != nil {
				return err
			}
			if strings.Contains(page, at) {
				break
			}
			time.Sleep(time.Millisecond) // the page is work for the process, too
		}
		took = append(took, max(0, time.Since(<-told)))
	}
	fmt.Printf("one provider more: in force %v after ZooKeeper's event, %.2f ms of CPU with the page that tells; %d times\n",
		took, ms(w.cpu()-before)/float64(s.changes), s.changes)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// silent is where the client of ZooKeeper writes its log.
type silent struct{}

// Printf forgets.
func (silent) Printf(string, ...any) {}
