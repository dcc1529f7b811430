package loopback

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestFreeAddress(t *testing.T) {
	address, err := FreeAddress("127.0.0.1")
	if err != nil || !strings.HasPrefix(address, "127.0.0.1:2") {
		t.Errorf("%s, %v", address, err)
	}
	if _, err := FreeAddress("192.0.2.1"); err == nil {
		t.Error("an address of another machine is free")
	}
}

// TestAddressesDiffer: no address is for two programs, of which neither listens yet.
func TestAddressesDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		address, err := FreeAddress("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Fatalf("%s is given twice", address)
		}
		seen[address] = true
	}
}

// TestReserved: what was given here is taken for other processes, and free for a listener.
func TestReserved(t *testing.T) {
	address, err := FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := net.ListenPacket("udp", address); err == nil {
		_ = other.Close()
		t.Error("another process would be given the address, too")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
}

// TestReservedOnAllHosts: a port of all hosts is not given to a program that listens on one of them, nor the other way around.
func TestReservedOnAllHosts(t *testing.T) {
	for _, hosts := range [][2]string{{"0.0.0.0", "127.0.0.1"}, {"127.0.0.1", "0.0.0.0"}} {
		address, err := FreeAddress(hosts[0])
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := net.ListenPacket("udp", net.JoinHostPort(hosts[1], port)); err == nil {
			_ = other.Close()
			t.Errorf("port %s of %s would be given on %s, too", port, hosts[0], hosts[1])
		}
	}
}

// TestListenAgain: programs that are started meanwhile have the closed listener until their exec, which the next listener waits for.
func TestListenAgain(t *testing.T) {
	address, err := FreeAddress("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	var started atomic.Int32
	for range 2 {
		starting.Go(func() {
			for ctx.Err() == nil {
				if exec.CommandContext(ctx, program, "-test.run=^$").Run() == nil {
					started.Add(1)
				}
			}
		})
	}
	for n := 0; n < 1000 || started.Load() < 10; n++ {
		listener, err := Listen(address)
		if err != nil {
			t.Error(err)
			break
		}
		_ = listener.Close()
	}
	cancel()
	starting.Wait()
}
