package provider

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
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

func TestJoinCopiesInBothDirections(t *testing.T) {
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

func TestChooseTargets(t *testing.T) {
	machine := func(name, address string, on metav1.ConditionStatus) labv1.LabMachine {
		m := labv1.LabMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineHostName, Address: name},
			{Type: clusterv1.MachineInternalIP, Address: address}}
		m.Status.Conditions = []metav1.Condition{{Type: labv1.HostOnCondition, Status: on}}
		return m
	}
	all := []labv1.LabMachine{machine("a", "10.0.0.1", "True"), machine("b", "10.0.0.2", "True"), machine("c", "10.0.0.3", "False")}
	for name, tt := range map[string]struct {
		going map[string]bool
		want  []string
	}{
		"those that are on":            {nil, []string{"10.0.0.1", "10.0.0.2"}},
		"not those that go":            {map[string]bool{"a": true}, []string{"10.0.0.2"}},
		"those that go, if all others": {map[string]bool{"a": true, "b": true}, []string{"10.0.0.1", "10.0.0.2"}},
	} {
		if diff := cmp.Diff(tt.want, chooseTargets(all, tt.going)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestConnectionsToMachinesThatGoAreEnded(t *testing.T) {
	f := &front{conns: map[net.Conn]string{}}
	staying, there := tcpPair(t)
	going, gone := tcpPair(t)
	f.note(there, "10.0.0.1")
	f.note(gone, "10.0.0.2")
	f.keep([]string{"10.0.0.1"})
	if _, err := io.ReadAll(going); err != nil {
		t.Errorf("the connection to a machine that goes: %v", err)
	}
	if _, err := there.Write([]byte("a")); err != nil {
		t.Errorf("the connection to a machine that stays: %v", err)
	}
	if n, err := staying.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the connection to a machine that stays: %d, %v", n, err)
	}
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
