package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/pki"
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

// beWatchers watches as many plans as it is told, each on a connection of its own, and writes a line whenever all have been told something.
func beWatchers(of string) int {
	address, number, _ := strings.Cut(of, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	told := make(chan error, n)
	opening := make(chan struct{}, 32)
	for i := range n {
		opening <- struct{}{}
		go func() {
			opened := func() { <-opening }
			told <- watchPlanAt(address, i, opened, func() { told <- nil })
		}()
	}
	for {
		for range n {
			if err := <-told; err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		fmt.Println("told")
	}
}

func watchPlanAt(address string, i int, opened, told func()) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	name := benchName(i)
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s/api/v1/namespaces/%s/secrets?watch=true&fieldSelector=metadata.name=%s", address, planKey.Namespace, name), nil)
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
		told()
	}
}

// anyMachine knows the ServiceAccount and the RKEBootstrap of every machine there may be.
type anyMachine struct{ client.Reader }

func (anyMachine) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.ServiceAccount:
		planAccount(key.Name, key.Name, fixtureBootstrap(strings.TrimSuffix(key.Name, "-machine-plan"))).DeepCopyInto(obj)
	case *rkev1.RKEBootstrap:
		fixtureBootstrap(key.Name).DeepCopyInto(obj)
	}
	return nil
}

// benchName is the name of the plan Secret of a machine.
func benchName(i int) string { return fmt.Sprintf("m%d-machine-plan", i) }

// BenchmarkPlanWatches is what the watch of a plan costs the hub, with its connection: memory, and time until a new plan is told. All of them
// cost the API server one watch, so that this is the cost of a machine at rest.
func BenchmarkPlanWatches(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkPlanWatches(b, n) })
	}
}

func benchmarkPlanWatches(b *testing.B, n int) {
	s, address := serveWatchers(b, n)
	before := inUse()
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
	defer func() { _ = watchers.Process.Kill(); _ = watchers.Wait() }()
	lines := bufio.NewReader(out)
	await := func() {
		if _, err := lines.ReadString('\n'); err != nil {
			b.Fatalf("the agents have ended: %v", err)
		}
	}
	await() // the plans that there are
	after := inUse()
	version := 1
	for b.Loop() {
		version++
		for i := range n {
			if err := s.plans.Update(benchPlan(i, version)); err != nil {
				b.Fatal(err)
			}
		}
		await()
	}
	b.ReportMetric(float64(after-before)/1024/float64(n), "KiB/watch")
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/plan")
}

func benchPlan(i, version int) *corev1.Secret {
	secret := planAt(strconv.Itoa(version), "a")
	owner := fixtureBootstrap(fmt.Sprintf("m%d", i))
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
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
	pair, err := pki.Issue(servingRequest([]string{"localhost"}), nil, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	identity := &Identity{}
	identity.serving.Store(&tls.Certificate{Certificate: [][]byte{pair.Cert.Raw}, PrivateKey: pair.Key, Leaf: pair.Cert})
	s = newTestServer(b, "")
	s.opts.Identity = identity
	s.machines.cached, s.machines.live = anyMachine{}, anyMachine{}
	s.machines.review = func(_ context.Context, token string) (authenticationv1.UserInfo, bool, error) {
		return authenticationv1.UserInfo{Username: "system:serviceaccount:" + planKey.Namespace + ":" + token, UID: token}, true, nil
	}
	all := make([]any, n)
	for i := range all {
		all[i] = benchPlan(i, 1)
	}
	if err := s.plans.Replace(all, "1"); err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := s.httpServer()
	server.ErrorLog.SetOutput(io.Discard)
	go func() { _ = server.Serve(tls.NewListener(listener, server.TLSConfig)) }()
	b.Cleanup(func() { close(s.stopping); _ = server.Close() })
	return s, listener.Addr().String()
}
