package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"dubbo.apache.org/dubbo-go/v3"
	"dubbo.apache.org/dubbo-go/v3/protocol"
	"dubbo.apache.org/dubbo-go/v3/server"
)

// Echo serves a part of the service of the Java peers. The library requires an exported type.
type Echo struct{}

// MethodMapper maps methods to their names in Java.
func (*Echo) MethodMapper() map[string]string {
	return map[string]string{"Say": "say", "Fail": "fail", "Sleep": "sleep", "Reverse": "reverse"}
}

func (*Echo) Say(_ context.Context, text string) (string, error) { return text, nil }

func (*Echo) Fail(_ context.Context, message string) (string, error) { return "", errors.New(message) }

func (*Echo) Sleep(_ context.Context, text string, millis int64) (string, error) {
	time.Sleep(time.Duration(millis) * time.Millisecond)
	return text, nil
}

func (*Echo) Reverse(_ context.Context, data []byte) ([]byte, error) {
	reversed := make([]byte, len(data))
	for i, b := range data {
		reversed[len(data)-1-i] = b
	}
	return reversed, nil
}

// provide serves on a port until standard input ends.
func provide(reports *os.File, port string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	instance, err := dubbo.NewInstance(
		dubbo.WithName("go-provider"),
		// Without this option the library serves its own service on a fixed port. A port in use
		// would keep the library from serving. The result is outside the range ports.Interop.
		dubbo.WithMetadataServicePort(26_000+number%6_000),
		// dubbo-go 3.3.1 enables TLS for a protocol whose ID is its name.
		dubbo.WithProtocol(protocol.WithDubbo(), protocol.WithID("here"), protocol.WithIp("127.0.0.1"), protocol.WithPort(number)),
	)
	if err != nil {
		return err
	}
	s, err := instance.NewServer()
	if err != nil {
		return err
	}
	if err := s.Register(&Echo{}, nil, server.WithInterface(service), server.WithNotRegister()); err != nil {
		return err
	}
	serveErr := make(chan error, 1)
	go func() { serveErr <- s.Serve() }()
	if err := awaitListening("127.0.0.1:"+port, serveErr); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(reports, "ready", port); err != nil {
		return err
	}
	return commands(func(string) {})
}

// awaitListening waits until a connect to address succeeds. If an error arrives on serveErr first,
// it returns that error.
func awaitListening(address string, serveErr <-chan error) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			return conn.Close()
		}
		select {
		case err := <-serveErr:
			return err
		case <-ticker.C:
		}
	}
}
