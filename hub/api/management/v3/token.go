package v3

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Token is a persistent token, with which a user or a program reaches one cluster through the hub. The token itself is shown once, when it
// is made; what is kept is its hash. Deleting the Token revokes it. Tokens of minutes, as kubectl's plugin gets them, have no object.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tokens,scope=Cluster
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/provider=control-plane-drover","clusterctl.cluster.x-k8s.io="}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="User",type=string,JSONPath=`.spec.user.username`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterName`,description="The management Cluster"
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Last Used",type=date,JSONPath=`.status.lastUsedAt`
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Token struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +optional
	Spec TokenSpec `json:"spec,omitempty"`
	// +optional
	Status TokenStatus `json:"status,omitempty"`
}

// TokenSpec says who may reach what, and until when.
//
// +kubebuilder:validation:XValidation:rule="has(self.description) == has(oldSelf.description)",message="spec.description cannot be changed; delete the Token and make another one"
type TokenSpec struct {
	// ClusterName is the name of the one management Cluster that the token opens.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterName cannot be changed; delete the Token and make another one"
	ClusterName string `json:"clusterName"`
	// User is who its holder is.
	User TokenUser `json:"user"`
	// ExpiresAt is when it ends.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.expiresAt cannot be changed; delete the Token and make another one"
	ExpiresAt metav1.Time `json:"expiresAt"`
	// Hash is the lower-case hex SHA-256 of the token.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.hash cannot be changed; delete the Token and make another one"
	Hash string `json:"hash"`
	// Description is free text.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.description cannot be changed; delete the Token and make another one"
	Description string `json:"description,omitempty"`
}

// TokenUser is a user as the management cluster knew it when the token was made.
//
// +kubebuilder:validation:XValidation:rule="has(self.uid) == has(oldSelf.uid)",message="spec.user.uid cannot be changed; delete the Token and make another one"
type TokenUser struct {
	// Username is the name of the user.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.user.username cannot be changed; delete the Token and make another one"
	Username string `json:"username"`
	// UID tells apart users that had the same name one after the other.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.user.uid cannot be changed; delete the Token and make another one"
	UID string `json:"uid,omitempty"`
	// Groups that the user was in at the last login. The token has those of them in which the user was when it was made.
	// +optional
	// +kubebuilder:validation:MaxItems=500
	Groups []string `json:"groups,omitempty"`
}

// TokenStatus is what the hub has seen of it.
type TokenStatus struct {
	// ConfirmedAt is when the user last showed a credential of his own to the hub, exact to an hour; unset, it is when the Token was created.
	// A person's token is suspended for as long as that is too long ago.
	// +optional
	ConfirmedAt *metav1.Time `json:"confirmedAt,omitempty"`
	// LastUsedAt is when it was used last, exact to some minutes.
	// +optional
	LastUsedAt *metav1.Time `json:"lastUsedAt,omitempty"`
}

// TokenList is a list of Token.
//
// +kubebuilder:object:root=true
type TokenList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items are the objects of the list.
	Items []Token `json:"items"`
}
