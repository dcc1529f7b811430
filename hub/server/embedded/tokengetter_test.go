package embedded

import (
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTokenOfNewAccount: the token of a ServiceAccount is valid as soon as it is issued, though the account was created a moment before.
func TestTokenOfNewAccount(t *testing.T) {
	_, client := start(t, Options{DataDir: t.TempDir()})
	accounts := client.CoreV1().ServiceAccounts("default")
	for i := range 100 {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("new-", i)}}
		if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		issued, err := accounts.CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
		reviewed, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !reviewed.Status.Authenticated {
			t.Fatalf("the token of %s: %s", account.Name, reviewed.Status.Error)
		}
	}
}
