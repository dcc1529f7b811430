package apiproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	"github.com/sirupsen/logrus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/tunnel/session"
	"github.com/drover-dev/drover/tunnel/wire"
)

// benchCallers is the number of concurrent users.
const benchCallers = 64

// BenchmarkRequests measures responses of 4 KiB, which the API server delays by a millisecond, through a hub and a tunnel with TLS, for 64
// callers. The reference is the library's end of the tunnel with Go's default transport: TLS to the API server through the tunnel, two idle
// connections.
func BenchmarkRequests(b *testing.B) {
	logrus.SetOutput(io.Discard)
	b.Run("library-2-idle", func(b *testing.B) { benchLibrary(b, 2) })
	b.Run("library-100-idle", func(b *testing.B) { benchLibrary(b, 100) })
	b.Run("drover-stock-agent", func(b *testing.B) { benchDrover(b, true) })
	b.Run("drover-own-agent", func(b *testing.B) { benchDrover(b, false) })
}

// benchAPI starts an API server and counts its connections.
func benchAPI(b *testing.B, secure bool) (server *httptest.Server, dials *atomic.Int64) {
	body := []byte(strings.Repeat("x", 4<<10))
	dials = &atomic.Int64{}
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Millisecond)
		_, _ = w.Write(body)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	b.Cleanup(server.Close)
	return server, dials
}

func benchLibrary(b *testing.B, idle int) {
	api, dials := benchAPI(b, true)
	tunnels := remotedialer.New(func(*http.Request) (string, bool, error) { return connectedCluster, true, nil },
		remotedialer.DefaultErrorWriter)
	target, err := url.Parse(api.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{
		DialContext: tunnels.Dialer(connectedCluster), TLSClientConfig: api.Client().Transport.(*http.Transport).TLSClientConfig.Clone(),
		MaxIdleConnsPerHost: idle,
	}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport}
	mux := http.NewServeMux()
	mux.Handle("/v3/connect", tunnels)
	mux.Handle("/", proxy)
	hub := startHub(b, mux)
	connectLibrary(b, hub, api.Listener.Addr().String(), func() bool { return tunnels.HasSession(connectedCluster) })
	benchCalls(b, hub, dials)
}

func benchDrover(b *testing.B, stock bool) {
	api, dials := benchAPI(b, stock)
	address := api.Listener.Addr().String()
	tunnels := tunnel.New(tunnel.Options{Logger: logr.Discard()})
	agent := tunnel.Agent{Key: connectedCluster}
	if stock {
		agent.Legacy = &tunnel.LegacyCluster{Address: address, Token: "downstream", CACert: pemOf(api.Certificate())}
	}
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	handler, err := New(Options{
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "jane", Groups: []string{"ops"}}}, true, nil
		}),
		Authorizer: authorizer.AuthorizerFunc(allow.Authorize), Clusters: cached{}, Tunnels: tunnels, Logger: logr.Discard(),
	})
	if err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v3/connect", func(w http.ResponseWriter, r *http.Request) { tunnels.Serve(w, r, agent) })
	mux.Handle(Prefixes[0], handler)
	hub := startHub(b, mux)
	connected := func() bool { return tunnels.Connected(connectedCluster) }
	if stock {
		connectLibrary(b, hub, address, connected)
	} else {
		connectSession(b, hub, address, connected)
	}
	benchCalls(b, hub, dials)
}

// connectSession connects the agent's end of a session, which forwards everything to the API server.
func connectSession(b *testing.B, hub *httptest.Server, api string, connected func() bool) {
	shared := session.NewShared(session.Limits{}, nil)
	dialer := &websocket.Dialer{TLSClientConfig: trust(hub)}
	dialer.NetDialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return session.Bulk(conn), nil
	}
	header := http.Header{wire.FlowHeader: {wire.Directional}}
	ws, response, err := dialer.Dial(strings.Replace(hub.URL, "https", "wss", 1)+"/v3/connect", header)
	if err != nil {
		b.Fatal(err)
	}
	_ = response.Body.Close()
	running := session.New(shared, session.NewSocket(ws.NetConn(), shared), ws, session.Options{Peer: "hub", Client: true, Directional: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", api)
		}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		running.Serve()
	}()
	b.Cleanup(func() {
		running.Fail(session.Ended("test", "the benchmark is over"))
		<-done
	})
	awaitAgent(b, connected)
}

// cached copies objects, as a cache does.
type cached struct{ client.Reader }

func (cached) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if management, ok := into.(*managementv3.Cluster); ok {
		management.Labels = map[string]string{rkev1.OwnerClusterNamespaceLabel: "fleet", rkev1.OwnerClusterNameLabel: "awake"}
	}
	if _, ok := into.(*provisioningv1.Cluster); ok {
		into.SetAnnotations(map[string]string{rkev1.ManagementClusterNameAnnotation: connectedCluster})
	}
	into.SetName(key.Name)
	return nil
}

func startHub(b *testing.B, handler http.Handler) *httptest.Server {
	hub := httptest.NewUnstartedServer(handler)
	hub.Config.ErrorLog = log.New(io.Discard, "", 0)
	hub.Listener = session.Listener(hub.Listener) // as the gateway's
	hub.StartTLS()
	b.Cleanup(hub.Close)
	return hub
}

// connectLibrary connects the library's agent, which forwards everything to the API server.
func connectLibrary(b *testing.B, hub *httptest.Server, api string, connected func() bool) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		dialer := &websocket.Dialer{TLSClientConfig: trust(hub), ReadBufferSize: 64 << 10,
			WriteBufferSize: 64 << 10}
		local := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", api)
		}
		_ = remotedialer.ConnectToProxyWithDialer(ctx, strings.Replace(hub.URL, "https", "wss", 1)+"/v3/connect", nil,
			func(string, string) bool { return true }, dialer, local, nil)
	}()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	awaitAgent(b, connected)
}

func awaitAgent(b *testing.B, connected func() bool) {
	for deadline := time.Now().Add(10 * time.Second); !connected(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatal("the agent does not connect")
		}
	}
}

func trust(hub *httptest.Server) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(hub.Certificate())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// benchCalls sends b.N requests and reports requests per second, the latency of the median and of the slowest hundredth, and connections to
// the API server per request.
func benchCalls(b *testing.B, hub *httptest.Server, dials *atomic.Int64) {
	transport := hub.Client().Transport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = benchCallers
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	call := func() {
		response, err := client.Get(hub.URL + Prefixes[0] + connectedCluster + "/api/v1/pods")
		if err != nil {
			b.Error(err)
			return
		}
		if n, _ := io.Copy(io.Discard, response.Body); n != 4<<10 || response.StatusCode != http.StatusOK {
			b.Errorf("%s, %d bytes", response.Status, n)
		}
		_ = response.Body.Close()
	}
	var mu sync.Mutex
	var took []time.Duration
	var left atomic.Int64
	all := func(n int) {
		left.Store(int64(n))
		var callers sync.WaitGroup
		for range benchCallers {
			callers.Go(func() {
				var own []time.Duration
				for left.Add(-1) >= 0 {
					begun := time.Now()
					call()
					own = append(own, time.Since(begun))
				}
				mu.Lock()
				took = append(took, own...)
				mu.Unlock()
			})
		}
		callers.Wait()
	}
	all(2 * benchCallers) // connections of users are there already
	took = nil
	before, cpu := dials.Load(), cpuTime(b)
	b.ResetTimer()
	all(b.N)
	b.StopTimer()
	cpu = cpuTime(b) - cpu
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-us/req")
	b.ReportMetric(float64(dials.Load()-before)/float64(b.N), "dials/req")
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
}

// cpuTime is the CPU time of this process: users, hub, agent and API server together. Unlike time, it does not depend on other processes.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
