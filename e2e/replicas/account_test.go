//go:build e2e

package replicas

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/hub/server/embedded"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/packaging/rbac"
)

// hubAccount is the ServiceAccount of the replicas, which have the rights of packaging/rbac and no others.
const hubAccount = "drover-hub"

const apiAudit = "api-audit.log"

// auditOptions log every request to the API, to find those that were refused.
func auditOptions(t *testing.T, dir string) embedded.AuditOptions {
	t.Helper()
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy,
		[]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return embedded.AuditOptions{Path: filepath.Join(dir, apiAudit), PolicyFile: policy}
}

// makeAccount makes the ServiceAccount with its rights, and a kubeconfig for it.
func (e *env) makeAccount(t *testing.T, path string) string {
	t.Helper()
	rules, namespaced, err := rbac.HubRules()
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: settings.DefaultSystemNamespace, Name: hubAccount}}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
	e.create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: settings.DefaultSystemNamespace}}, account,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: hubAccount}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: hubAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hubAccount},
			Subjects:   subjects,
		},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: hubAccount}, Rules: namespaced},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: hubAccount},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: hubAccount},
			Subjects:   subjects,
		})
	request := &authenticationv1.TokenRequest{}
	if err := e.client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("making a token of the hub's account: %v", err)
	}
	admin := e.api.RestConfig()
	authority, err := os.ReadFile(admin.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["api"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: authority}
	config.AuthInfos["hub"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "api", AuthInfo: "hub"}
	config.CurrentContext = "hub"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkDenied fails the test for what the API has refused to the hub for want of a right.
func (e *env) checkDenied(t *testing.T) {
	file, err := os.Open(filepath.Join(e.dir, apiAudit))
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close()
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Error(err)
			return
		}
		forbidden := event.ResponseStatus != nil && event.ResponseStatus.Code == 403 &&
			event.Annotations["authorization.k8s.io/decision"] == "forbid"
		if what := event.Verb + " " + event.RequestURI; forbidden && strings.HasSuffix(event.User.Username, ":"+hubAccount) && !seen[what] {
			seen[what] = true
			t.Errorf("the hub may not %s", what)
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}
