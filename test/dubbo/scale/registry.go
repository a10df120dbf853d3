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

// server is a ZooKeeper process.
type server struct {
	address, dir string
	cmd          *exec.Cmd
}

// startServer starts Debian's ZooKeeper on a free port, without a limit of connections and without
// its admin server.
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

// jar is the path of the server in Debian's package zookeeper.
const jar = "/usr/share/java/zookeeper.jar"

// checkInstalled returns an error if Java or ZooKeeper is not installed.
func checkInstalled() error {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	_, err := os.Stat(jar)
	return err
}

// stop kills the server and removes its data.
func (s *server) stop() error {
	_ = s.cmd.Process.Kill() // the process may have exited
	_ = s.cmd.Wait()         // the process was killed
	return os.RemoveAll(s.dir)
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// registry is a session with the server. It registers the providers of the services that Weft
// subscribes to.
type registry struct{ conn *zk.Conn }

// service returns the interface name of service i.
func service(i int) string { return fmt.Sprintf("com.example.service.Number%d", i) }

// providers returns the path of a service's providers.
func providers(name string) string { return "/dubbo/" + name + "/providers" }

// providerNode returns the znode name of a provider: an escaped Dubbo URL. Its parameters pid and
// timestamp differ between providers.
func providerNode(name, address string) string {
	started := 1_700_000_000_000 + int64(crc32.ChecksumIEEE([]byte(name+address)))
	return url.QueryEscape("dubbo://" + address + "/" + name + "?anyhost=true&application=scale&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false" +
		"&interface=" + name + "&methods=create,find,remove,update&pid=" + strconv.FormatInt(started%32768, 10) + "&release=2.7.23&revision=1.0.0&side=provider" +
		"&timeout=3000&timestamp=" + strconv.FormatInt(started, 10) + "&version=1.0.0")
}

// populate connects to the server and registers the providers.
func (s *server) populate(ctx context.Context, size sizes) (*registry, error) {
	conn, _, err := zk.Connect([]string{s.address}, 30*time.Second, zk.WithLogger(discardLogger{}))
	if err != nil {
		return nil, err
	}
	r := &registry{conn}
	for _, err = conn.Create("/dubbo", nil, 0, zk.WorldACL(zk.PermAll)); err != nil; _, err = conn.Create("/dubbo", nil, 0, zk.WorldACL(zk.PermAll)) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ZooKeeper does not serve: %w", err)
		}
	}
	return r, runConcurrently(size.subscribed, func(i int) error {
		name := service(i)
		operations := []any{createRequest("/dubbo/" + name), createRequest(providers(name))}
		for p := range size.providers {
			operations = append(operations, &zk.CreateRequest{Path: providers(name) + "/" + providerNode(name, address(i, p)), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral})
		}
		_, err := conn.Multi(operations...)
		return err
	})
}

func createRequest(path string) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)}
}

// address returns the address of the p-th provider of service i.
func address(i, p int) string {
	return fmt.Sprintf("10.%d.%d.%d:20880", p, i>>8, i&255)
}

// create registers a provider and creates its parent znodes, as a registration does.
func (r *registry) create(name, address string) error {
	parents := []string{"/dubbo/" + name, providers(name)}
	for _, path := range parents {
		if _, err := r.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	_, err := r.conn.Create(providers(name)+"/"+providerNode(name, address), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	return err
}

// read reads the znodes that a subscription reads, one after another.
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

// change registers providers one after another. It measures the time from ZooKeeper's watch event
// until Weft uses each provider.
func (r *registry) change(ctx context.Context, w *weft, s sizes) error {
	var elapsed times
	before := w.cpu()
	for n := range s.changes {
		i := n * 7 % s.subscribed
		name := service(i)
		_, _, events, err := r.conn.ChildrenW(providers(name))
		if err != nil {
			return err
		}
		address := "10.200." + strconv.Itoa(n>>8) + "." + strconv.Itoa(n&255) + ":20880"
		received := make(chan time.Time, 1)
		go func() {
			<-events
			received <- time.Now()
		}()
		if _, err := r.conn.Create(providers(name)+"/"+providerNode(name, address), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			return err
		}
		for {
			page, err := w.get(ctx, w.admin, "/clusters?name="+url.QueryEscape(name+":1.0.0"))
			if err != nil {
				return err
			}
			if strings.Contains(page, address) {
				break
			}
			time.Sleep(time.Millisecond) // each poll costs the measured process CPU time
		}
		elapsed = append(elapsed, max(0, time.Since(<-received)))
	}
	fmt.Printf("one more provider: active %v after ZooKeeper's event, %.2f ms of CPU including the polled page; %d times\n",
		elapsed, ms(w.cpu()-before)/float64(s.changes), s.changes)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// discardLogger discards the log of the ZooKeeper client.
type discardLogger struct{}

// Printf discards its arguments.
func (discardLogger) Printf(string, ...any) {}
