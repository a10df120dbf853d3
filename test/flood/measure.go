package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weft-proxy/weft/test/bench/process"
)

// result is the cost of an attack for a proxy, and its effect on an honest client of another
// listener.
type result struct {
	bursts, connections int           // of the attackers
	cpu                 time.Duration // of the proxy, user and system
	peak                uint64        // highest resident memory, in bytes
	files               int           // maximum of open descriptors
	requests            int           // requests of the honest client, including failed ones
	failures            int           // failed requests of the honest client
	p50, p99            time.Duration // latency of the honest client's requests
}

// String returns a row of the table without the proxy's name.
func (r result) String() string {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%5.2f CPU s | %4d MB | %5d fds | p50 %6.2f ms | p99 %7.2f ms | %6d requests | %d failed | %d bursts on %d connections",
		r.cpu.Seconds(), r.peak>>20, r.files, ms(r.p50), ms(r.p99), r.requests, r.failures, r.bursts, r.connections)
}

// measure runs an attack on a target while an honest client sends requests.
func measure(t *target, a attack, l load) (result, error) {
	var r result
	before, err := process.CPUTime(process.Tree(t.pid))
	if err != nil {
		return r, err
	}
	stop := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { r.files = maxOpenFiles(t.pid, stop) })
	var latencies []time.Duration
	background.Go(func() { latencies, r.failures = requestUntil(t.clientAddress, stop) })
	r.bursts, r.connections = a.run(t.attackAddress, l)
	close(stop)
	background.Wait()
	after, err := process.CPUTime(process.Tree(t.pid))
	if err != nil {
		return r, err
	}
	memory, err := process.ReadMemory(process.Tree(t.pid))
	if err != nil {
		return r, err
	}
	r.cpu, r.peak, r.requests = after-before, memory.Peak, len(latencies)
	if len(latencies) > 0 {
		slices.Sort(latencies)
		r.p50, r.p99 = latencies[len(latencies)/2], latencies[len(latencies)*99/100]
	}
	return r, nil
}

// sampleInterval is the interval between two counts of descriptors.
const sampleInterval = 20 * time.Millisecond

// maxOpenFiles returns the maximum number of descriptors of a process and its descendants until
// stop is closed.
func maxOpenFiles(pid int, stop <-chan struct{}) (maximum int) {
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		sum := 0
		for _, pid := range process.Tree(pid) {
			if dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
				names, _ := dir.Readdirnames(-1) // the process may exit during the read
				sum += len(names)
				_ = dir.Close()
			}
		}
		maximum = max(maximum, sum)
		select {
		case <-ticker.C:
		case <-stop:
			return maximum
		}
	}
}

// requestInterval is the interval of the honest client's requests while responses take less time.
const requestInterval = 2 * time.Millisecond

// requestUntil sends requests one after another until stop is closed. It returns the latency of
// every request, including failed ones, and the number of failures.
func requestUntil(address string, stop <-chan struct{}) (latencies []time.Duration, failures int) {
	const requestTimeout = 10 * time.Second
	var conn net.Conn
	var in *bufio.Reader
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	sendRequest := func() error {
		if conn == nil {
			c, err := net.DialTimeout("tcp", address, requestTimeout)
			if err != nil {
				return err
			}
			conn, in = c, bufio.NewReader(c)
		}
		_ = conn.SetDeadline(time.Now().Add(requestTimeout)) // fails only on a closed connection
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: honest.test\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", resp.StatusCode)
		}
		return err
	}
	ticker := time.NewTicker(requestInterval)
	defer ticker.Stop()
	for {
		start := time.Now()
		if err := sendRequest(); err != nil {
			failures++
			if conn != nil {
				_ = conn.Close()
				conn = nil
			}
		}
		latencies = append(latencies, time.Since(start))
		select {
		case <-stop:
			return latencies, failures
		default:
		}
		select {
		case <-ticker.C:
		case <-stop:
			return latencies, failures
		}
	}
}
