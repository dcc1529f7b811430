package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/testenv"
	fake "github.com/drover-dev/drover/hub/testenv/nodedriver"
	"github.com/drover-dev/drover/hub/testenv/tunneltest"
)

var tokenInScript = regexp.MustCompile(`CATTLE_TOKEN=['"]?([^'"\s]+)`)

// machineSSH logs in to the machine of the only instance: at its address, and through a tunnel of its own. Whoever may not get its Secret
// may do neither.
func machineSSH(t *testing.T, cloud *fake.Cloud, namespace string) {
	t.Helper()
	var instance fake.Instance
	for _, i := range cloud.Instances() {
		instance = i
	}
	name := instance.Name
	home := t.TempDir()
	ssh := func(command ...string) (int, string) {
		args := append([]string{"machine", "ssh", namespace + "/" + name, "--kubeconfig", env.Server.Kubeconfig(), "--"}, command...)
		hub := exec.CommandContext(t.Context(), os.Args[0], args...)
		hub.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home, "TMPDIR="+home)
		out, _ := hub.CombinedOutput()
		return hub.ProcessState.ExitCode(), string(out)
	}
	ran := func(command string) bool {
		for _, script := range cloud.Instances()[name].Scripts {
			if strings.HasPrefix(script, command+"\n") {
				return true
			}
		}
		return false
	}
	if code, out := ssh("at", "its", "address"); code != 0 || !ran("at its address") {
		t.Errorf("%d: %s", code, out)
	}
	path := env.ServerURL + "/v3/machines/" + namespace + "/" + name + "/ssh"
	asMember(t, namespace, name, path)

	// The machine has a tunnel from now on, and an address that nobody reaches.
	token := tokenInScript.FindStringSubmatch(instance.Scripts[0])[1]
	code, answer := gatewayGet(t, env.ServerURL+"/v3/connect/agent", http.Header{"Authorization": {"Bearer " + token},
		"X-Cattle-Id": {"ssh-0123456789abcdef"}, "X-Cattle-Machine-Secret": {machineSecret}})
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, answer)
	}
	config, _, _ := machineConfig(t, answer)
	port := moveAddress(t, namespace, name, func(config map[string]any) { config["IPAddress"] = "192.0.2.1" })
	agent := env.ConnectMachine(t, config.BearerToken, net.JoinHostPort("127.0.0.1", port))
	if code, out := ssh("through", "the", "tunnel"); code != 0 || !ran("through the tunnel") {
		t.Errorf("%d: %s", code, out)
	}
	// No other server is reached so, and no other port than the agent allows.
	mail := mailServer(t)
	for _, c := range []struct{ allow, port, want string }{
		{mail, mail, "no SSH server"}, {port, mail, "tunnel.allow"},
	} {
		agent.Disconnect()
		agent = env.ConnectMachine(t, config.BearerToken, net.JoinHostPort("127.0.0.1", c.allow))
		moveAddress(t, namespace, name, func(config map[string]any) { config["SSHPort"], _ = strconv.Atoi(c.port) })
		if code, out := ssh("elsewhere"); code == 0 || !strings.Contains(out, c.want) {
			t.Errorf("%d: %s", code, out)
		}
	}
	moveAddress(t, namespace, name, func(config map[string]any) { config["SSHUser"] = "-oProxyCommand=evil" })
	if code, out := ssh("injected"); code == 0 || !strings.Contains(out, "is no name of a user") {
		t.Errorf("%d: %s", code, out)
	}
	moveAddress(t, namespace, name, func(config map[string]any) {
		config["SSHUser"], config["IPAddress"] = "root", "127.0.0.1"
		config["SSHPort"], _ = strconv.Atoi(port)
	})
	agent.Disconnect()
	if left, err := filepath.Glob(filepath.Join(home, "drover-ssh-*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}

	var events corev1.EventList
	if err := env.Client.List(t.Context(), &events, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; e.InvolvedObject.Kind == "Machine" && e.InvolvedObject.Name == name {
			reasons[e.Reason] = true
		}
	}
	if !reasons["SSHKeyRead"] || !reasons["SSHConnection"] {
		t.Errorf("the Machine has Events %v", reasons)
	}
}

// asMember asks for the way into a machine with the token of a ServiceAccount, which gets the right to its Secret, and loses it.
func asMember(t *testing.T, namespace, machine, url string) {
	t.Helper()
	env.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "member"}})
	clientset, err := kubernetes.NewForConfig(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := clientset.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "member", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	member := http.Header{"Authorization": {"Bearer " + issued.Status.Token}}
	refused := func(url string) string {
		t.Helper()
		code, answer := gatewayGet(t, url, member)
		if code != http.StatusForbidden {
			t.Fatalf("%d: %s", code, answer)
		}
		return answer
	}
	denied, absent := refused(url), refused(strings.Replace(url, machine, "none", 1))
	if strings.ReplaceAll(denied, machine, "none") != absent {
		t.Errorf("%s is told from %s", denied, absent)
	}
	if code, answer := gatewayGet(t, url, http.Header{}); code != http.StatusUnauthorized {
		t.Errorf("%d: %s", code, answer)
	}
	state := rkev1.MachineStateSecretName(labMachines(t, namespace)[0].GetName())
	mayRead := rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{state}, Verbs: []string{"get"},
	}
	env.Create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "member"}, Rules: []rbacv1.PolicyRule{mayRead}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "member"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "member"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "member"}},
		})
	testenv.Until(t, "the member to get the key", func() error {
		if code, answer := gatewayGet(t, url, member); code != http.StatusOK || !strings.Contains(answer, `"privateKey"`) {
			return fmt.Errorf("%d: %s", code, answer)
		}
		return nil
	})
	member.Set("Upgrade", "tcp")
	if code, answer := gatewayGet(t, url, member); code != http.StatusBadRequest {
		t.Errorf("%d: %s", code, answer)
	}
}

// moveAddress changes the driver's configuration in the machine state Secret, as whoever may write that can. It returns the port for SSH.
func moveAddress(t *testing.T, namespace, machine string, change func(map[string]any)) string {
	t.Helper()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = namespace, rkev1.MachineStateSecretName(labMachines(t, namespace)[0].GetName())
	port := ""
	testenv.Change(t, env, secret, func(s *corev1.Secret) {
		state, err := nodedriver.Decode(machine, s.Data[nodedriver.StateKey])
		if err != nil {
			t.Fatal(err)
		}
		port = changeConfig(t, state, change)
		if s.Data[nodedriver.StateKey], err = state.Encode(); err != nil {
			t.Fatal(err)
		}
	})
	return port
}

// changeConfig changes what config.json has of the driver.
func changeConfig(t *testing.T, state *nodedriver.State, change func(map[string]any)) (port string) {
	t.Helper()
	var host struct {
		Driver map[string]any
		rest   map[string]any
	}
	raw := state.Files["config.json"]
	if err := errors.Join(json.Unmarshal(raw, &host), json.Unmarshal(raw, &host.rest)); err != nil {
		t.Fatal(err)
	}
	port = fmt.Sprint(host.Driver["SSHPort"])
	change(host.Driver)
	host.rest["Driver"] = host.Driver
	raw, err := json.Marshal(host.rest)
	if err != nil {
		t.Fatal(err)
	}
	state.Files["config.json"] = raw
	return port
}

// mailServer greets whoever connects, but not as an SSH server does. It returns its port.
func mailServer(t *testing.T) string {
	t.Helper()
	address := tunneltest.Listen(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "220 mail.example.com\r\n") })
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func gatewayGet(t *testing.T, url string, header http.Header) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header.Clone()
	transport := &http.Transport{TLSClientConfig: env.Trust()}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
