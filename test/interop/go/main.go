// Peer is a consumer or a provider of the interoperability tests, written with dubbo-go. Like the
// peers in Java, it reads commands from standard input and writes reports to standard output.
//
//	peer consumer
//	peer provider PORT
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"syscall"

	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failfast"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/cluster/failover"
	_ "dubbo.apache.org/dubbo-go/v3/cluster/loadbalance/random"
	_ "dubbo.apache.org/dubbo-go/v3/filter/accesslog"
	_ "dubbo.apache.org/dubbo-go/v3/filter/echo"
	_ "dubbo.apache.org/dubbo-go/v3/filter/exec_limit"
	_ "dubbo.apache.org/dubbo-go/v3/filter/generic"
	_ "dubbo.apache.org/dubbo-go/v3/filter/graceful_shutdown"
	_ "dubbo.apache.org/dubbo-go/v3/filter/token"
	_ "dubbo.apache.org/dubbo-go/v3/filter/tps"
	_ "dubbo.apache.org/dubbo-go/v3/protocol/dubbo"
	_ "dubbo.apache.org/dubbo-go/v3/proxy/proxy_factory"
)

// service is the interface of the Java peers, which this peer calls and serves.
const service = "weft.interop.dubbo.Echo"

func main() {
	reports, err := takeStdout()
	if err != nil {
		fail(err)
	}
	switch {
	case len(os.Args) == 2 && os.Args[1] == "consumer":
		err = consume(reports)
	case len(os.Args) == 3 && os.Args[1] == "provider":
		err = provide(reports, os.Args[2])
	default:
		err = fmt.Errorf("usage: %s consumer | provider PORT", os.Args[0])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// takeStdout returns standard output, reserved for reports. After the call, other output, such as
// the log of the library, goes to standard error.
func takeStdout() (*os.File, error) {
	fd, err := syscall.Dup(syscall.Stdout)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "reports"), syscall.Dup3(syscall.Stderr, syscall.Stdout, 0)
}

// commands calls f with each line of standard input, until EOF.
func commands(f func(line string)) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		f(lines.Text())
	}
	if err := lines.Err(); err != nil && err != io.EOF {
		return err
	}
	return nil
}
