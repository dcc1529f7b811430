package access

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/testenv"
	"github.com/drover-dev/drover/plans"
)

// wrongCredentials counts wrong credentials, so that no two are the same.
var wrongCredentials atomic.Int64

// idleClients is the number of unauthenticated connections while agents and users work.
const idleClients = 1000

// idleClient opens a connection from an address and sends something. It returns once the hub has responded, if it does; the connection is
// not used any more.
type idleClient func(ctx context.Context, source string) (net.Conn, error)

// dialFrom connects to the gateway from a loopback address.
func dialFrom(ctx context.Context, source string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}).DialContext(ctx, "tcp", env.Gateway)
}

// halfHandshake starts a TLS handshake and does not finish it.
func halfHandshake(ctx context.Context, source string) (net.Conn, error) {
	conn, err := dialFrom(ctx, source)
	if err == nil {
		_, err = conn.Write([]byte{0x16, 3, 1})
	}
	return conn, err
}

// request sends the beginning of a request, and waits for a response if the request asks for one.
func request(head string) idleClient {
	return func(ctx context.Context, source string) (net.Conn, error) {
		raw, err := dialFrom(ctx, source)
		if err != nil {
			return nil, err
		}
		config := env.Trust()
		config.ServerName = "127.0.0.1"
		conn := tls.Client(raw, config)
		text := strings.NewReplacer("\n", "\r\n", "nobody", fmt.Sprintf("nobody-%d", wrongCredentials.Add(1))).Replace(head)
		if _, err = conn.Write([]byte(text)); err == nil && strings.Contains(head, "Expect:") {
			_, err = bufio.NewReader(conn).ReadByte()
		}
		return conn, err
	}
}

// kinds are the kinds of idle clients. With "Expect", the hub responds before it reads the body.
var kinds = []idleClient{
	halfHandshake,
	request("GET /v3/connect/agent HTTP/1.1\nHost: hub\nX-Never: "),
	request("POST /v3/connect/credential HTTP/1.1\nHost: hub\nAuthorization: Bearer nobody\nContent-Length: 100\nExpect: 100-continue\n\n"),
	request("POST /v3/tokens HTTP/1.1\nHost: hub\nAuthorization: Bearer nobody\nContent-Type: application/json\nContent-Length: " +
		"100\nExpect: 100-continue\n\n"),
}

// holdIdleConnections keeps connections of unauthenticated clients open until the test ends, and opens each again that the hub has closed.
// It returns when all were open.
func holdIdleConnections(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all, first sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for i := range idleClients {
		kind, source := kinds[i%len(kinds)], fmt.Sprintf("127.0.0.%d", 2+i/len(kinds)%20)
		first.Add(1)
		all.Go(func() {
			open := sync.OnceFunc(first.Done)
			defer open()
			for ctx.Err() == nil {
				conn, err := kind(ctx, source)
				open()
				waitClosed(ctx, conn, err)
			}
		})
	}
	first.Wait()
}

// waitClosed waits until the hub closes a connection; after an error it waits a moment, so that callers do not spin.
func waitClosed(ctx context.Context, conn net.Conn, err error) {
	if conn != nil {
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		defer func() { _ = conn.Close() }()
	}
	for buffer := make([]byte, 512); err == nil; {
		_, err = conn.Read(buffer)
	}
	select {
	case <-ctx.Done():
	case <-time.After(100 * time.Millisecond):
	}
}

// sendWrongCredentials sends wrong credentials from the address of the test's agents and users until the test ends. It returns when each
// kind of credential has been refused often enough that the address is limited.
func sendWrongCredentials(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all, limited sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	browser := httpClientOf(t)
	for _, path := range []string{"/version", "/k8s/clusters/c-m-none/api", "/v3/connect/agent", "/v3/connect"} {
		limited.Add(1)
		all.Go(func() {
			full := sync.OnceFunc(limited.Done)
			defer full()
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, env.ServerURL+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				token := fmt.Sprintf("wrong-%d", wrongCredentials.Add(1))
				r.Header.Set("Authorization", "Bearer "+token)
				if path == "/v3/connect" {
					for name, value := range map[string]string{
						"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
					} {
						r.Header.Set(name, value)
					}
				}
				response, err := browser.Do(r)
				if err != nil {
					continue
				}
				_ = response.Body.Close()
				if response.StatusCode == http.StatusTooManyRequests {
					full()
				}
			}
		})
	}
	limited.Wait()
}

// TestUnauthenticatedLoad: with many connections of unauthenticated clients, and wrong credentials from the same address, requests of
// agents, machines and users are not refused.
func TestUnauthenticatedLoad(t *testing.T) { //nolint:paralleltest // it is about what one hub does under load
	c := newConnected(t)
	user, robotToken := newServiceAccount(t, c, "robot")
	grantAccess(t, c, user)
	human := withToken(c, robotToken)
	awaitCode(t, human, http.StatusOK)
	_, other := newCluster(t)
	agentToken, _ := newToken(t, other, managementv3.AgentsPurpose)
	machineToken, _ := newToken(t, c.id, managementv3.MachinesPurpose)
	planToken := register(t, machineToken, "before")
	secrets := kubernetes.NewForConfigOrDie(&rest.Config{
		Host: env.ServerURL, BearerToken: planToken, TLSClientConfig: rest.TLSClientConfig{CAData: env.CACerts}, QPS: -1,
	}).CoreV1().Secrets(c.Namespace)
	secret := rkev1.PlanSecretName(rkev1.MachineRequestName("before"))

	holdIdleConnections(t)
	for round := range 5 {
		if round == 2 {
			sendWrongCredentials(t)
		}
		// A machine reads, watches and writes its plan.
		got, err := secrets.Get(t.Context(), secret, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("round %d: reading the plan: %v", round, err)
		}
		watched, err := secrets.Watch(t.Context(),
			metav1.ListOptions{FieldSelector: "metadata.name=" + secret, ResourceVersion: got.ResourceVersion})
		if err != nil {
			t.Fatalf("round %d: watching the plan: %v", round, err)
		}
		testenv.OnConflict(t, fmt.Sprintf("round %d: writing into the plan", round), func() error { // the hub writes into it, too
			if got, err = secrets.Get(t.Context(), secret, metav1.GetOptions{}); err != nil {
				return err
			}
			if got.Data == nil {
				got.Data = map[string][]byte{}
			}
			got.Data[plans.KeyProbeStatuses] = fmt.Appendf(nil, `{"round-%d":{}}`, round)
			_, err = secrets.Update(t.Context(), got, metav1.UpdateOptions{})
			return err
		})
		select {
		case <-watched.ResultChan():
		case <-t.Context().Done():
		}
		watched.Stop()

		// An agent gets a credential, renews it and opens its tunnel.
		first := requestCredential(t, agentToken, fmt.Sprintf("agent-0123456789abcdef-%d", round))
		if first.code != http.StatusOK {
			t.Fatalf("round %d: a credential for an agent: %d %s", round, first.code, first.text)
		}
		if again := requestCredential(t, first.Credential, ""); again.code != http.StatusOK {
			t.Fatalf("round %d: a renewed credential: %d %s", round, again.code, again.text)
		}
		_ = openTunnel(t, "/v3/connect", bearer(first.Credential)).Close()

		// A new machine registers.
		testenv.Until(t, "a machine to be registered", func() error {
			code, text := get(t, "/v3/connect/agent", machineHeaders(machineToken, fmt.Sprintf("new-%d", round), machineSecret))
			if code == http.StatusTooManyRequests {
				t.Fatalf("round %d: registering a machine: %d %s", round, code, text)
			}
			if code != http.StatusOK {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		})

		// A user reaches the cluster, and gets a token for it that works.
		if _, err := whoAmI(t, human); err != nil {
			t.Fatalf("round %d: a request of a user: %v", round, err)
		}
		var token usertokens.Answer
		if err := env.Post(t, usertokens.Path, robotToken, usertokens.Request{Cluster: c.id}, &token); err != nil {
			t.Fatalf("round %d: a token of a user: %v", round, err)
		}
		if _, err := whoAmI(t, withToken(c, token.Token)); err != nil {
			t.Fatalf("round %d: a request with a new token: %v", round, err)
		}
	}
}
