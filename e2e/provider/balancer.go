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

	mu        sync.Mutex // guards listeners
	listeners map[client.ObjectKey]net.Listener
}

func newBalancer(reader client.Reader, host netip.Addr, logger logr.Logger) *balancer {
	return &balancer{reader: reader, host: host, logger: logger, listeners: map[client.ObjectKey]net.Listener{}}
}

// Start closes all ports when the provider ends.
func (b *balancer) Start(ctx context.Context) error {
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.listeners {
		_ = l.Close()
	}
	return nil
}

// open listens for a cluster, at the port that it had before, or at the first that is free, and returns where.
func (b *balancer) open(key client.ObjectKey, cluster string, had clusterv1.APIEndpoint) (clusterv1.APIEndpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.listeners[key]
	if l == nil {
		var err error
		if l, err = b.listen(had.Port); err != nil {
			return clusterv1.APIEndpoint{}, err
		}
		b.listeners[key] = l
		go b.serve(l, key.Namespace, cluster)
	}
	return clusterv1.APIEndpoint{Host: b.host.String(), Port: int32(l.Addr().(*net.TCPAddr).Port)}, nil
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
	if l := b.listeners[key]; l != nil {
		_ = l.Close()
		delete(b.listeners, key)
	}
}

func (b *balancer) serve(l net.Listener, namespace, cluster string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return // closed
		}
		go b.forward(in, namespace, cluster)
	}
}

// forward connects to the first machine that takes the connection, and copies until both ends are done.
func (b *balancer) forward(in net.Conn, namespace, cluster string) {
	defer in.Close()
	targets, err := b.targets(context.Background(), namespace, cluster)
	if err != nil {
		b.logger.Error(err, "Cannot find the machines of a cluster", "namespace", namespace, "cluster", cluster)
		return
	}
	for _, target := range targets {
		out, err := net.DialTimeout("tcp", net.JoinHostPort(target, strconv.Itoa(apiPort)), dialTimeout)
		if err != nil {
			continue
		}
		join(in, out)
		return
	}
}

// targets are the addresses of the control plane machines that are on, in an order that changes with the time.
func (b *balancer) targets(ctx context.Context, namespace, cluster string) ([]string, error) {
	machines := &labv1.LabMachineList{}
	err := b.reader.List(ctx, machines, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster},
		client.HasLabels{clusterv1.MachineControlPlaneLabel})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range machines.Items {
		m := &machines.Items[i]
		if !m.DeletionTimestamp.IsZero() || !conditions.IsTrue(m, labv1.HostOnCondition) {
			continue
		}
		for _, a := range m.Status.Addresses {
			if a.Type == clusterv1.MachineInternalIP {
				out = append(out, a.Address)
			}
		}
	}
	if len(out) > 1 {
		first := int(time.Now().UnixMilli()) % len(out)
		out = slices.Concat(out[first:], out[:first])
	}
	return out, nil
}

// join copies in both directions; an end that has said all closes only its half.
func join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if half, ok := way[0].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
		})
	}
	both.Wait()
	_ = a.Close()
	_ = b.Close()
}
