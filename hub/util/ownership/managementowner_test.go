package ownership

import "testing"

func TestManagementName(t *testing.T) {
	owner := ManagementOwner{Namespace: "fleet-default", Name: "one", UID: "0001"}
	one := owner.name(0)
	if !namePattern.MatchString(one) {
		t.Errorf("%q does not look like the name of a management Cluster", one)
	}
	if again := owner.name(0); again != one {
		t.Errorf("the name is %q once and %q another time", one, again)
	}
	if next := owner.name(1); next == one {
		t.Error("a second attempt gives the same name")
	}
	owner.UID = "0002"
	if owner.name(0) == one {
		t.Error("a cluster that was created again gets the name of the old one")
	}
}
