package access

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv"
)

// asTenant returns a client with all rights to Secrets and ServiceAccounts of a namespace except reading Secrets, and no others.
func asTenant(t *testing.T, namespace string) client.Client {
	t.Helper()
	return env.Tenant(t, namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "update", "patch", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "serviceaccounts/token"}, Verbs: []string{"*"}})
}

// accountToken requests a token of a ServiceAccount.
func accountToken(t *testing.T, c client.Client, account *corev1.ServiceAccount) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	testenv.Until(t, "a token of "+account.Name, func() error { return c.SubResource("token").Create(t.Context(), account, request) })
	return request.Status.Token
}

func ownedBy(bootstrap *rkev1.RKEBootstrap) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(bootstrap, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
}

// TestForeignServiceAccount: who may write ServiceAccounts and Secrets in the namespace of a machine can neither read nor write its plan.
func TestForeignServiceAccount(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.MachinesPurpose)
	const id = "attacked-machine"
	planToken := register(t, token, id)
	name := rkev1.MachineRequestName(id)
	plan := rkev1.PlanSecretName(name)
	path := "/api/v1/namespaces/" + cluster.Namespace + "/secrets/" + plan
	if code, text := get(t, path, bearer(planToken)); code != http.StatusOK {
		t.Fatalf("the machine itself: %d %s", code, text)
	}
	bootstrap := &rkev1.RKEBootstrap{}
	env.Get(t, cluster.Namespace, name, bootstrap)
	tenant := asTenant(t, cluster.Namespace)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "pretender", Labels: map[string]string{
		rkev1.ServiceAccountRoleLabel: rkev1.ServiceAccountRolePlan, rkev1.PlanSecretNameLabel: plan,
		rkev1.ClusterNameLabel: cluster.Name, rkev1.MachineNameLabel: name, rkev1.BootstrapNameLabel: name,
	}}}
	if err := tenant.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	pretended := accountToken(t, tenant, account)
	if code, _ := get(t, path, bearer(pretended)); code != http.StatusUnauthorized {
		t.Errorf("an account with the labels of the machine's reads the plan: %d", code)
	}
	if code, text := openRefused(t, "/v3/connect", bearer(pretended)); code != http.StatusUnauthorized {
		t.Errorf("an account with the labels of the machine's account opens a tunnel: %d %s", code, text)
	}

	// The API server takes policies up some time after they are there.
	testenv.Until(t, "the policy to be in force", func() error {
		forged := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "dry"}, Type: rkev1.MachinePlanSecretType}
		if err := tenant.Create(t.Context(), forged, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("making a plan Secret: %w", orNone(err))
		}
		return nil
	})
	for what, forge := range map[string]func() error{
		"makes an account of the machine": func() error {
			return tenant.Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "owned", OwnerReferences: ownedBy(bootstrap)}})
		},
		"gives his account to the machine": func() error {
			changed := account.DeepCopy()
			changed.OwnerReferences = ownedBy(bootstrap)
			return tenant.Update(t.Context(), changed)
		},
		"makes a plan Secret": func() error {
			return tenant.Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "next-machine-plan"},
					Type: rkev1.MachinePlanSecretType})
		},
		"makes a machine request": func() error {
			return tenant.Create(t.Context(),
				&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "request"}, Type: rkev1.MachineRequestSecretType})
		},
	} {
		if err := forge(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only the hub writes") {
			t.Errorf("a tenant %s: %v", what, err)
		}
	}
}

// TestMachineHasNoRole: a machine's token is valid at the gateway and has no rights at the API server; rights of an earlier version are
// removed.
func TestMachineHasNoRole(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.MachinesPurpose)
	const id = "machine-without-role"
	planToken := register(t, token, id)
	name := rkev1.MachineRequestName(id)
	plan := client.ObjectKey{Namespace: cluster.Namespace, Name: rkev1.PlanSecretName(name)}

	config := rest.AnonymousClientConfig(env.Config)
	config.BearerToken = planToken
	direct, err := client.New(config, client.Options{Scheme: env.Client.Scheme(), Mapper: env.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	isRefused := func() error {
		if err := direct.Get(t.Context(), plan, &corev1.Secret{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the machine reads its plan past the gateway: %w", orNone(err))
		}
		return nil
	}
	testenv.Until(t, "the API server to know the machine's token", func() error {
		if err := direct.Get(t.Context(), plan, &corev1.Secret{}); apierrors.IsUnauthorized(err) {
			return err
		}
		return nil
	})
	if err := isRefused(); err != nil {
		t.Error(err)
	}

	bootstrap := &rkev1.RKEBootstrap{}
	env.Get(t, cluster.Namespace, name, bootstrap)
	meta := metav1.ObjectMeta{Namespace: plan.Namespace, Name: plan.Name, OwnerReferences: ownedBy(bootstrap)}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{plan.Name},
		Verbs: []string{"get", "list", "watch", "update"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: plan.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: plan.Namespace, Name: plan.Name}},
	}
	kept := role.DeepCopy()
	kept.Name, kept.OwnerReferences = "somebody-elses", nil
	env.Create(t, kept, role, binding)
	env.Gone(t, role)
	env.Gone(t, binding)
	testenv.Until(t, "the right to be gone", isRefused)
	env.Get(t, kept.Namespace, kept.Name, kept)
	if code, text := get(t, "/api/v1/namespaces/"+plan.Namespace+"/secrets/"+plan.Name, bearer(planToken)); code != http.StatusOK {
		t.Errorf("the machine at the gateway: %d %s", code, text)
	}
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// TestForeignPlanSecret: a plan Secret or a ServiceAccount that existed before the hub created its own is not adopted, and no machine gets
// it.
func TestForeignPlanSecret(t *testing.T) {
	t.Parallel()
	cluster, management := newCluster(t)
	token, _ := newToken(t, management, managementv3.MachinesPurpose)
	for _, tt := range []struct {
		id      string
		planted func(client.ObjectKey) client.Object
	}{
		{"machine-with-planted-plan", func(key client.ObjectKey) client.Object {
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				Type:       rkev1.MachinePlanSecretType, Data: map[string][]byte{"plan": []byte(`{"instructions":[{"command":"/bin/evil"}]}`)},
			}
		}},
		{"machine-with-planted-account", func(key client.ObjectKey) client.Object {
			return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		}},
	} {
		t.Run(tt.id, func(t *testing.T) {
			t.Parallel()
			name := rkev1.MachineRequestName(tt.id)
			planted := tt.planted(client.ObjectKey{Namespace: cluster.Namespace, Name: rkev1.PlanSecretName(name)})
			env.Create(t, planted)
			// The answer waits for the machine's identity.
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, env.ServerURL+"/v3/connect/agent", nil)
			if err != nil {
				t.Fatal(err)
			}
			for header, value := range machineHeaders(token, tt.id, machineSecret) {
				request.Header.Set(header, value)
			}
			answered := make(chan error, 1)
			go func() {
				response, err := httpClientOf(t).Do(request)
				if err == nil {
					text, _ := io.ReadAll(response.Body)
					_ = response.Body.Close()
					if response.StatusCode == http.StatusOK {
						err = fmt.Errorf("%d characters", len(text))
					}
				}
				answered <- err
			}()
			bootstrap := &rkev1.RKEBootstrap{}
			testenv.Until(t, "the RKEBootstrap", func() error {
				return env.Client.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: name}, bootstrap)
			})
			message := testenv.Condition(t, env, bootstrap, "IdentityReady", metav1.ConditionFalse, "NameTaken")
			if !strings.Contains(message, planted.GetName()+" exists and does not belong to this RKEBootstrap") {
				t.Errorf("the condition says %q", message)
			}
			env.Get(t, planted.GetNamespace(), planted.GetName(), planted)
			if len(planted.GetLabels()) > 0 || len(planted.GetOwnerReferences()) > 0 {
				t.Errorf("what was planted was taken over: %v, %v", planted.GetLabels(), planted.GetOwnerReferences())
			}
			select {
			case err := <-answered:
				if err != nil {
					t.Errorf("the machine was answered with what was planted: %v", err)
				}
			default:
			}
			env.Delete(t, planted)
			register(t, token, tt.id)
		})
	}
}
