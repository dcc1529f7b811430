package access

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/cli"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/testenv"
)

// command runs a command of the hub with a kubeconfig of the management cluster, by default the administrator's.
func command(kubeconfig string, args ...string) (code int, stdout, stderr string) {
	if kubeconfig == "" {
		kubeconfig = filepath.Join(env.Dir, "data", embedded.AdminKubeconfig)
	}
	var out, err bytes.Buffer
	code = cli.Main(append(args, "--kubeconfig", kubeconfig), &out, &err)
	return code, out.String(), err.String()
}

func mustCommand(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(kubeconfig, args...)
	if code != 0 {
		t.Fatalf("hub %s: %d %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// userOfKubeconfig returns the user that a cluster takes the holder of a kubeconfig for.
func userOfKubeconfig(t *testing.T, kubeconfig string) (string, error) {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	return userOf(t, config)
}

func userOf(t *testing.T, config *rest.Config) (string, error) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

// TestKubeconfigCommand: the kubeconfig of "hub kubeconfig" gives users access to the cluster under their own name, and has no secret.
func TestKubeconfigCommand(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "people", nil)
	r.Read(r.Cluster.Name, r.Cluster)
	env.NewAgent(t, r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation])
	key := r.Cluster.Namespace + "/" + r.Cluster.Name

	kubeconfig := mustCommand(t, "", "kubeconfig", key)
	if strings.Contains(kubeconfig, "token:") || strings.Contains(kubeconfig, "client-key") {
		t.Errorf("it holds a secret:\n%s", kubeconfig)
	}
	testenv.Until(t, "the cluster to answer", func() error {
		who, err := userOfKubeconfig(t, kubeconfig)
		if err == nil && who != "drover-hub-admin" {
			t.Fatalf("it is %s", who)
		}
		return err
	})

	static := mustCommand(t, "", "kubeconfig", key, "--static", "--ttl", "1h", "--description", "a pipeline")
	if who, err := userOfKubeconfig(t, static); who != "drover-hub-admin" {
		t.Errorf("with a persistent token it is %q (%v)", who, err)
	}
	list := mustCommand(t, "", "tokens", "list", key)
	line := ""
	for text := range strings.Lines(list) {
		if strings.Contains(text, "a pipeline") && strings.Contains(text, "drover-hub-admin") {
			line += text
		}
	}
	if strings.Count(line, "\n") != 1 {
		t.Fatalf("the list is\n%s", list)
	}
	name := strings.Fields(line)[0]
	secret := tokenOf(t, static)
	token := &managementv3.Token{}
	env.Get(t, "", name, token)
	if token.Spec.Hash != tokens.Hash(secret) {
		t.Error("the Token is of another token")
	}
	mustCommand(t, "", "tokens", "revoke", name)
	testenv.Until(t, "the revoked token to be worth nothing", func() error {
		if who, err := userOfKubeconfig(t, static); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it is %q: %w", who, err)
		}
		return nil
	})
	if code, _, stderr := command("", "tokens", "revoke", name); code != 1 || !strings.Contains(stderr, "token "+name+" not found") {
		t.Errorf("revoking it again: %d %s", code, stderr)
	}
	log, err := os.ReadFile(env.Log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte(secret)) {
		t.Error("the hub's log holds the token")
	}
}

func tokenOf(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil || config.BearerToken == "" {
		t.Fatalf("there is no token in it: %v", err)
	}
	return config.BearerToken
}

// TestTokenRights: users get tokens only for clusters that they may access, and cannot use a token to get another.
func TestTokenRights(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "rights", nil)
	r.Read(r.Cluster.Name, r.Cluster)
	ns, key := r.Cluster.Namespace, r.Cluster.Namespace+"/"+r.Cluster.Name
	env.NewAgent(t, r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation])
	env.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "robot"}})
	management := kubernetes.NewForConfigOrDie(env.Config)
	issued, err := management.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := managementKubeconfig(t, issued.Status.Token)
	args := []string{"token", "--server", env.ServerURL, "--cluster", key, "--certificate-authority-data", base64CA()}
	if code, _, stderr := command(kubeconfig, args...); code != 1 ||
		!strings.Contains(stderr, "there is no cluster "+key+" that user \"system:serviceaccount:"+ns+":robot\" may reach") {
		t.Errorf("without the right: %d %s", code, stderr)
	}
	if code, _, stderr := command(kubeconfig, "kubeconfig", key); code != 1 || !strings.Contains(stderr, "a right is missing") {
		t.Errorf("a kubeconfig without the right: %d %s", code, stderr)
	}
	meta := metav1.ObjectMeta{Namespace: ns, Name: "reach"}
	env.Create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{provisioningv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{r.Cluster.Name},
		Verbs: []string{"get"},
	}}}, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reach"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "robot"}},
	})
	var answer usertokens.Answer
	testenv.Until(t, "the right to count", func() error {
		return env.Post(t, usertokens.Path, issued.Status.Token, usertokens.Request{Cluster: key}, &answer)
	})
	through := &rest.Config{
		Host: env.ServerURL + "/k8s/clusters/" + r.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation], BearerToken: answer.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: env.CACerts},
	}
	testenv.Until(t, "the cluster to answer", func() error {
		who, err := userOf(t, through)
		if err == nil && who != "drover:hub:system:serviceaccount:"+ns+":robot" {
			t.Fatalf("it is %s", who)
		}
		return err
	})
	if err := env.Post(t, usertokens.Path, answer.Token, usertokens.Request{Cluster: key}, &answer); err == nil ||
		!strings.Contains(err.Error(), "401") {
		t.Errorf("a token of the hub makes others: %v", err)
	}
	other := env.NewCluster(t, "other", nil)
	other.Read(other.Cluster.Name, other.Cluster)
	through.Host = env.ServerURL + "/k8s/clusters/" + other.Cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if who, err := userOf(t, through); !apierrors.IsForbidden(err) {
		t.Errorf("a token for one cluster gives access to another: %q %v", who, err)
	}
}

// managementKubeconfig writes a kubeconfig for the management cluster with a token.
func managementKubeconfig(t *testing.T, token string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(env.Dir, "data", embedded.AdminKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKubeconfigDirectContexts: with an authorized cluster endpoint, the kubeconfig has contexts that connect without the hub.
func TestKubeconfigDirectContexts(t *testing.T) {
	t.Parallel()
	r := env.NewCluster(t, "open", nil)
	r.Read(r.Cluster.Name, r.Cluster)
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { c.Spec.LocalClusterAuthEndpoint.Enabled = true })
	m := r.Register("open-one", "192.0.2.20", "etcd", "control-plane", "worker")
	m.AwaitPlan("")
	key := r.Cluster.Namespace + "/" + r.Cluster.Name
	var config *clientcmdapi.Config
	contexts := func(want string) func() error {
		return func() error {
			code, stdout, stderr := command("", "kubeconfig", key)
			if code != 0 || stderr != "" {
				return fmt.Errorf("%d %s", code, stderr)
			}
			var err error
			if config, err = clientcmd.Load([]byte(stdout)); err != nil {
				return err
			}
			if config.Contexts[want] == nil || len(config.Contexts) != 2 {
				return fmt.Errorf("the contexts are %v", config.Contexts)
			}
			return nil
		}
	}
	testenv.Until(t, "a context for the machine", contexts(key+"@"+m.Name))
	direct := config.Clusters[key+"@"+m.Name]
	if direct.Server != "https://192.0.2.20:6443" || len(direct.CertificateAuthorityData) == 0 ||
		bytes.Equal(direct.CertificateAuthorityData, env.CACerts) {
		t.Errorf("it leads to %s, trusting %s", direct.Server, direct.CertificateAuthorityData)
	}
	if config.CurrentContext != key || config.Contexts[key+"@"+m.Name].AuthInfo != key {
		t.Errorf("the context past the hub is %+v, the current one %s", config.Contexts[key+"@"+m.Name], config.CurrentContext)
	}
	r.Read(r.Cluster.Name, r.Cluster)
	testenv.Change(t, env, r.Cluster, func(c *provisioningv1.Cluster) { c.Spec.LocalClusterAuthEndpoint.FQDN = "api.example.com" })
	testenv.Until(t, "a context for the name", contexts(key+"@api.example.com"))
	if server := config.Clusters[key+"@api.example.com"].Server; server != "https://api.example.com" {
		t.Errorf("it leads to %s", server)
	}
}
