package clusteragent

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// labels are on everything, and select the agent's Pods.
func labels() map[string]string { return map[string]string{"app": Deployment} }

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels()}
}

func inNamespace(name string) metav1.ObjectMeta {
	m := meta(name)
	m.Namespace = Namespace
	return m
}

// namespace asks nothing of the Pods in it where the authorized cluster endpoint is on: that listens on the host's loopback address, which
// the standards for Pods forbid.
func namespace(in Input) runtime.Object {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace},
	}
	if in.AuthEndpoint != nil {
		ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}
	}
	return ns
}

func serviceAccount() runtime.Object {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: inNamespace(ServiceAccount)}
}

// permissions are all that the agent may do in the cluster: speak for the users whom the hub has authenticated, and keep its own
// credential.
func permissions(in Input) []runtime.Object {
	objects := []runtime.Object{
		clusterRole(Deployment,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"users", "groups", "serviceaccounts"}, Verbs: []string{"impersonate"}},
			// UIDs and extra fields are all that can be impersonated in this group. Each extra field is a subresource of userextras, and RBAC has
			// no pattern for all subresources of one resource: "userextras/*" matches none of them.
			rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{rbacv1.ResourceAll},
				Verbs: []string{"impersonate"}},
		),
		clusterRoleBinding(Deployment, agent()),
		&rbacv1.Role{
			TypeMeta: rbacType("Role"), ObjectMeta: inNamespace(Deployment),
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "update"}, ResourceNames: []string{IdentitySecret}},
				// Nobody can be allowed to create one name only.
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			},
		},
		&rbacv1.RoleBinding{
			TypeMeta: rbacType("RoleBinding"), ObjectMeta: inNamespace(Deployment),
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Deployment},
			Subjects: []rbacv1.Subject{agent()},
		},
	}
	return append(objects,
		clusterRole(ControllersGroup, controllerRules(in)...),
		clusterRoleBinding(ControllersGroup, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: ControllersGroup}),
	)
}

// controllerRules are what the hub's controllers may do where the hub does not have the cluster's authority. In a cluster that it manages
// nevertheless, it and Cluster API label, drain and delete Nodes, evict Pods, and read snapshots.
func controllerRules(in Input) []rbacv1.PolicyRule {
	if in.AllowMasters {
		return []rbacv1.PolicyRule{
			{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}},
			{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
		}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
		{NonResourceURLs: []string{"/version", "/version/", "/healthz", "/livez", "/readyz"}, Verbs: []string{"get"}},
	}
}

func agent() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: ServiceAccount}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) runtime.Object {
	return &rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: meta(name), Rules: rules}
}

func clusterRoleBinding(role string, subject rbacv1.Subject) runtime.Object {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: meta(role),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{subject},
	}
}

// credential is what the agent introduces itself with.
func credential(in Input) runtime.Object {
	data := map[string][]byte{"url": []byte(in.ServerURL), "token": []byte(in.Token), "namespace": []byte(Namespace)}
	if len(in.CACerts) > 0 {
		data["ca.crt"] = in.CACerts
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: inNamespace(in.credentialName()),
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}
}

// pullSecret is the Secret that pullSecrets names.
func pullSecret(in Input) []runtime.Object {
	if len(in.PullConfig) == 0 {
		return nil
	}
	return []runtime.Object{&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: inNamespace(PullSecret),
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: in.PullConfig},
	}}
}

// pullSecrets are those of all Pods.
func (in Input) pullSecrets() []corev1.LocalObjectReference {
	if len(in.PullConfig) == 0 {
		return nil
	}
	return []corev1.LocalObjectReference{{Name: PullSecret}}
}
