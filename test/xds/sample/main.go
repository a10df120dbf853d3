// Command sample is a control plane for trying out Weft: see configs/xds.json.
//
//	go run ./test/xds/sample -listen 127.0.0.1:18000 -resources test/xds/sample/resources.json
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/weft-proxy/weft/test/xds/control"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18000", "address of the control plane")
	path := flag.String("resources", "test/xds/sample/resources.json", "resource file, which is served again when it changes")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err == nil {
		log.Info("serving", "address", ln.Addr().String(), "resources", *path)
		err = control.Serve(ctx, ln, *path, log)
	}
	if err != nil {
		log.Error("the control plane has ended", "error", err)
		os.Exit(1)
	}
}
