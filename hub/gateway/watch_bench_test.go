package gateway

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/plans"
)

// watchersEnv makes the test's program the agents of BenchmarkPlanWatches, so that their memory is not counted: "<address> <number>".
const watchersEnv = "DROVER_TEST_WATCHERS"

func TestMain(m *testing.M) {
	if of := os.Getenv(watchersEnv); of != "" {
		os.Exit(beWatchers(of))
	}
	os.Exit(m.Run())
}

// beWatchers watches as many plans as it is received, each on a connection of its own, and writes a line whenever all have been received
// something.
func beWatchers(of string) int {
	address, number, _ := strings.Cut(of, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	received := make(chan error, n)
	opening := make(chan struct{}, 32)
	for i := range n {
		opening <- struct{}{}
		go func() {
			opened := func() { <-opening }
			received <- watchPlanAt(address, i, opened, func() { received <- nil })
		}()
	}
	for {
		for range n {
			if err := <-received; err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		fmt.Println("received")
	}
}

func watchPlanAt(address string, i int, opened, received func()) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	name := benchName(i)
	r, err := http.NewRequest(http.MethodGet,
		fmt.Sprintf("https://%s/api/v1/namespaces/%s/secrets?watch=true&fieldSelector=metadata.name=%s", address, planNamespace, name), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+name)
	response, err := transport.RoundTrip(r)
	opened()
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("watching %s: %s", name, response.Status)
	}
	lines := bufio.NewReader(response.Body)
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			return err
		}
		received()
	}
}

// benchName is the name of the plan Secret of a machine.
func benchName(i int) string { return fmt.Sprintf("m%d-machine-plan", i) }

// BenchmarkPlanWatches is what the watch of a plan costs the hub, with its connection: memory, and time until a new plan is received. All
// of them cost the API server one watch, so that this is the cost of a machine at rest.
func BenchmarkPlanWatches(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkPlanWatches(b, n) })
	}
}

func benchmarkPlanWatches(b *testing.B, n int) {
	s, address := serveWatchers(b, n)
	before := inUse()
	await := startWatchers(b, address, n)
	await() // the plans that there are
	after := inUse()
	version := 1
	for b.Loop() {
		version++
		for i := range n {
			if err := s.secrets.Plans.Update(benchPlan(i, version)); err != nil {
				b.Fatal(err)
			}
		}
		await()
	}
	b.ReportMetric(float64(after-before)/1024/float64(n), "KiB/watch")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/plan")
}

// TestStacksOfWatches: the three goroutines of a watch have stacks of 8 KiB at most while nothing happens.
func TestStacksOfWatches(t *testing.T) {
	const n, most = 500, 24 << 10
	_, address := serveWatchers(t, n)
	stacks := func() int {
		runtime.GC() // which halves a stack of which less than a quarter is used
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.StackInuse)
	}
	before := stacks()
	startWatchers(t, address, n)()
	for deadline := time.Now().Add(time.Minute); ; {
		got := (stacks() - before) / n
		if got <= most {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the stacks of a watch have %d bytes, want %d at most", got, most)
		}
	}
}

// startWatchers starts agents in a program of its own, and returns what waits until all of them have received something.
func startWatchers(b testing.TB, address string, n int) (await func()) {
	b.Helper()
	watchers := exec.Command(os.Args[0])
	watchers.Env = append(os.Environ(), watchersEnv+"="+address+" "+strconv.Itoa(n))
	watchers.Stderr = os.Stderr
	out, err := watchers.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := watchers.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = watchers.Process.Kill(); _ = watchers.Wait() })
	lines := bufio.NewReader(out)
	return func() {
		b.Helper()
		if _, err := lines.ReadString('\n'); err != nil {
			b.Fatalf("the agents have ended: %v", err)
		}
	}
}

func benchPlan(i, version int) *corev1.Secret {
	owner := fixtureBootstrap(fmt.Sprintf("m%d", i))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: planNamespace, ResourceVersion: strconv.Itoa(version), UID: "a",
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "somebody"}},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, rkev1.GroupVersion.WithKind("RKEBootstrap"))},
	}}
	secret.Name, secret.Data = benchName(i), map[string][]byte{plans.KeyPlan: make([]byte, 4<<10)}
	return secret
}

// inUse is the memory of heap and stacks that is not garbage.
func inUse() uint64 {
	time.Sleep(time.Second) // what has just been written is on its way
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// serveWatchers serves n plans to machines whose token is the name of their plan.
func serveWatchers(b testing.TB, n int) (s *Server, address string) {
	b.Helper()
	s = newTestServer(b, "")
	all := make([]any, n)
	for i := range all {
		all[i] = benchPlan(i, 1)
	}
	if err := s.secrets.Plans.Replace(all, "1"); err != nil {
		b.Fatal(err)
	}
	return s, serve(b, s, s.httpServer())
}

// serve serves with TLS, and limits connections as Start does.
func serve(b testing.TB, s *Server, server *http.Server) (address string) {
	b.Helper()
	return serveWithin(b, s, server, connlimit.Defaults)
}

func serveWithin(b testing.TB, s *Server, server *http.Server, limits connlimit.Limits) (address string) {
	b.Helper()
	pair, err := pki.Issue(pki.Request{CommonName: "hub", Usage: x509.ExtKeyUsageServerAuth, DNSNames: []string{"localhost"},
		Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server.TLSConfig.GetCertificate = nil
	server.TLSConfig.Certificates = []tls.Certificate{{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert}}
	server.ErrorLog.SetOutput(io.Discard)
	go func() { _ = serveTLS(server, connlimit.Listen(listener, limits)) }()
	b.Cleanup(func() { s.drain.stop(); _ = server.Close() })
	return listener.Addr().String()
}
