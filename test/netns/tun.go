package netns

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// queueSize is the maximum number of packets in transit in one direction. Further packets are
	// lost.
	queueSize = 1000
	// maxPacketSize exceeds the default MTU of a device.
	maxPacketSize = 4096
)

// tunPair forwards packets between two TUN devices. The directions are independent:
//
//	read -> lost, or due at a time -> queue, first in first out -> wait -> write
type tunPair struct {
	ab, ba  *direction
	devices [2]*os.File
	loops   sync.WaitGroup
}

// newTUNPair creates the devices of both ends and starts to forward packets.
func newTUNPair(a, b End, seed uint64) (*tunPair, error) {
	p := &tunPair{}
	for i, end := range []End{a, b} {
		device, err := openTUN(end)
		if err != nil {
			p.close()
			return nil, err
		}
		p.devices[i] = device
	}
	p.ab = newDirection(p.devices[0], p.devices[1], rand.New(rand.NewPCG(seed, 1)))
	p.ba = newDirection(p.devices[1], p.devices[0], rand.New(rand.NewPCG(seed, 2)))
	for _, d := range []*direction{p.ab, p.ba} {
		p.loops.Go(d.readLoop)
		p.loops.Go(d.writeLoop)
	}
	return p, nil
}

// openTUN creates the TUN device of the end, in its namespace.
func openTUN(end End) (*os.File, error) {
	var file *os.File
	err := end.Namespace.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("/dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(end.Device)
		if err != nil {
			panic("netns: the name of a device: " + err.Error())
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			_ = unix.Close(fd) // the device was not used
			return fmt.Errorf("TUNSETIFF: %w", err)
		}
		file = os.NewFile(uintptr(fd), end.Device)
		return nil
	})
	return file, err
}

// close closes the devices and waits for the goroutines.
func (p *tunPair) close() {
	for _, device := range p.devices {
		if device != nil {
			_ = device.Close() // packets in transit are lost
		}
	}
	p.loops.Wait()
}

func (p *tunPair) impair(aToB bool, impairment Impairment) {
	d := p.ba
	if aToB {
		d = p.ab
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.impairment = impairment
}

// packet is a packet in transit.
type packet struct {
	data []byte
	due  time.Time
}

// direction forwards packets from one device to the other.
type direction struct {
	from, to *os.File
	queue    chan packet

	mu         sync.Mutex // guards impairment
	impairment Impairment

	rng       *rand.Rand // owned by readLoop
	nextStart time.Time  // owned by readLoop; the time before which the rate allows no other packet
}

func newDirection(from, to *os.File, rng *rand.Rand) *direction {
	return &direction{from: from, to: to, queue: make(chan packet, queueSize), rng: rng}
}

// readLoop reads packets until the device is closed, and queues or drops each.
func (d *direction) readLoop() {
	defer close(d.queue)
	buffer := make([]byte, maxPacketSize)
	for {
		n, err := d.from.Read(buffer)
		if err != nil {
			return
		}
		due, lost := d.schedule(n, time.Now())
		if lost {
			continue
		}
		select {
		case d.queue <- packet{append([]byte(nil), buffer[:n]...), due}:
		default: // the queue is full: lost
		}
	}
}

// schedule returns when a packet of n bytes, read at the time now, is due at the other end. lost is
// true if the link loses the packet.
func (d *direction) schedule(n int, now time.Time) (due time.Time, lost bool) {
	d.mu.Lock()
	impairment := d.impairment
	d.mu.Unlock()
	// Every packet takes a random number, so the losses depend only on the order of packets.
	if d.rng.Float64() < impairment.Loss {
		return time.Time{}, true
	}
	if impairment.Rate > 0 {
		if d.nextStart.Before(now) {
			d.nextStart = now
		}
		d.nextStart = d.nextStart.Add(time.Duration(float64(n*8) / float64(impairment.Rate) * float64(time.Second)))
		now = d.nextStart
	}
	return now.Add(impairment.Delay), false
}

// writeLoop writes packets when they are due.
func (d *direction) writeLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for p := range d.queue {
		if wait := time.Until(p.due); wait > 0 {
			timer.Reset(wait)
			<-timer.C
		}
		// A device that is down or closed accepts no packets: the packet is lost.
		_, _ = d.to.Write(p.data)
	}
}
