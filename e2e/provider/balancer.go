package provider

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

// The API of a cluster is at apiPort of its machines, and at a port from there on of the lab's own address.
const (
	apiPort     = 6443
	dialTimeout = 2 * time.Second
)

// balancer hands connections to the control plane machines of clusters. It lives as long as the provider: what goes through it breaks when
// the provider ends, and its ports are open again when it is back.
type balancer struct {
	reader client.Reader
	host   netip.Addr
	logger logr.Logger

	mu     sync.Mutex // guards fronts
	fronts map[client.ObjectKey]*front
}

// front is the open port of one cluster.
type front struct {
	net.Listener
	namespace, cluster string

	mu    sync.Mutex          // guards conns
	conns map[net.Conn]string // to which machine each connection goes
}

func newBalancer(reader client.Reader, host netip.Addr, logger logr.Logger) *balancer {
	return &balancer{reader: reader, host: host, logger: logger, fronts: map[client.ObjectKey]*front{}}
}

// Start closes all ports when the provider ends.
func (b *balancer) Start(ctx context.Context) error {
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.fronts {
		_ = f.Close()
	}
	return nil
}

// open listens for a cluster, at the port that it had before, or at the first that is free, and returns where.
func (b *balancer) open(key client.ObjectKey, cluster string, had clusterv1.APIEndpoint) (clusterv1.APIEndpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.fronts[key]
	if f == nil {
		l, err := b.listen(had.Port)
		if err != nil {
			return clusterv1.APIEndpoint{}, err
		}
		f = &front{Listener: l, namespace: key.Namespace, cluster: cluster, conns: map[net.Conn]string{}}
		b.fronts[key] = f
		go b.serve(f)
	}
	return clusterv1.APIEndpoint{Host: b.host.String(), Port: int32(f.Addr().(*net.TCPAddr).Port)}, nil
}

func (b *balancer) listen(port int32) (net.Listener, error) {
	if port != 0 {
		return net.Listen("tcp", net.JoinHostPort(b.host.String(), strconv.Itoa(int(port))))
	}
	var err error
	for port := apiPort; port < apiPort+100; port++ {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(b.host.String(), strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no port is free for a load balancer: %w", err)
}

func (b *balancer) close(key client.ObjectKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.fronts[key]; f != nil {
		_ = f.Close()
		delete(b.fronts, key)
	}
}

func (b *balancer) serve(f *front) {
	for {
		in, err := f.Accept()
		if err != nil {
			return // closed
		}
		go b.forward(f, in)
	}
}

// forward connects to the first machine that takes the connection, and copies until both ends are done.
func (b *balancer) forward(f *front, in net.Conn) {
	defer in.Close()
	targets, err := b.targets(context.Background(), f.namespace, f.cluster)
	if err != nil {
		b.logger.Error(err, "Cannot find the machines of a cluster", "namespace", f.namespace, "cluster", f.cluster)
		return
	}
	for _, target := range targets {
		out, err := net.DialTimeout("tcp", net.JoinHostPort(target, strconv.Itoa(apiPort)), dialTimeout)
		if err != nil {
			continue
		}
		f.note(out, target)
		join(in, out)
		f.note(out, "")
		return
	}
}

// leave ends the connections of a cluster that go to machines which get no new ones: they are off, or about to be deleted.
func (b *balancer) leave(ctx context.Context, namespace, cluster string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.fronts {
		if f.namespace != namespace || f.cluster != cluster {
			continue
		}
		targets, err := b.targets(ctx, namespace, cluster)
		if err != nil {
			return fmt.Errorf("finding the machines of Cluster %s: %w", cluster, err)
		}
		f.keep(targets)
	}
	return nil
}

// note remembers to which machine a connection goes; with an empty target it has ended.
func (f *front) note(out net.Conn, target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if target == "" {
		delete(f.conns, out)
		return
	}
	f.conns[out] = target
}

func (f *front) keep(targets []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for out, target := range f.conns {
		if !slices.Contains(targets, target) {
			_ = out.Close()
		}
	}
}

// targets are the addresses of the control plane machines that are on, in an order that changes with the time. Those that are about to be
// deleted are among them only if there are no others.
func (b *balancer) targets(ctx context.Context, namespace, cluster string) ([]string, error) {
	ofCluster := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster},
		client.HasLabels{clusterv1.MachineControlPlaneLabel}}
	owners := &clusterv1.MachineList{}
	if err := b.reader.List(ctx, owners, ofCluster...); err != nil {
		return nil, err
	}
	going := map[string]bool{}
	for _, m := range owners.Items {
		going[m.Spec.InfrastructureRef.Name] = !m.DeletionTimestamp.IsZero()
	}
	machines := &labv1.LabMachineList{}
	if err := b.reader.List(ctx, machines, ofCluster...); err != nil {
		return nil, err
	}
	return rotate(chooseTargets(machines.Items, going), time.Now().UnixMilli()), nil
}

func chooseTargets(machines []labv1.LabMachine, going map[string]bool) []string {
	var stay, leave []string
	for i := range machines {
		m := &machines[i]
		if !conditions.IsTrue(m, labv1.HostOnCondition) {
			continue
		}
		for _, a := range m.Status.Addresses {
			switch {
			case a.Type != clusterv1.MachineInternalIP:
			case going[m.Name] || !m.DeletionTimestamp.IsZero():
				leave = append(leave, a.Address)
			default:
				stay = append(stay, a.Address)
			}
		}
	}
	if len(stay) == 0 {
		return leave
	}
	return stay
}

// rotate lets the list begin at another place.
func rotate(list []string, by int64) []string {
	if len(list) < 2 {
		return list
	}
	first := int(by % int64(len(list)))
	return slices.Concat(list[first:], list[:first])
}

// join copies in both directions; an end that has said all closes only its half.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			if half, ok := pair[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}
