package provider

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestBalancerKeepsItsPort(t *testing.T) {
	b := newBalancer(nil, netip.MustParseAddr("127.0.0.1"), logr.Discard())
	one, two := client.ObjectKey{Name: "one"}, client.ObjectKey{Name: "two"}
	first, err := b.open(one, "one", clusterv1.APIEndpoint{})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.open(one, "one", first); err != nil || again != first {
		t.Errorf("opened again: %+v, %v", again, err)
	}
	other, err := b.open(two, "two", clusterv1.APIEndpoint{})
	if err != nil || other.Port == first.Port {
		t.Errorf("another cluster gets %+v, %v", other, err)
	}
	b.close(one)
	if back, err := b.open(one, "one", first); err != nil || back != first {
		t.Errorf("after a restart of the provider: %+v, %v", back, err)
	}
	b.close(one)
	b.close(two)
	if _, err := net.Dial("tcp", netip.AddrPortFrom(b.host, uint16(first.Port)).String()); err == nil {
		t.Error("a closed port answers")
	}
}

func TestJoinCopiesBothWays(t *testing.T) {
	front, in := tcpPair(t)
	back, out := tcpPair(t)
	done := make(chan struct{})
	go func() { join(in, out); close(done) }()
	if _, err := front.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	_ = front.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(back); err != nil || string(got) != "question" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := back.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	_ = back.Close()
	if got, err := io.ReadAll(front); err != nil || string(got) != "answer" {
		t.Errorf("%q, %v", got, err)
	}
	<-done
}

// tcpPair is the two ends of a connection.
func tcpPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}
