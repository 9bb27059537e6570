package procnode

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fakeSources knows one Secret and one ConfigMap, both named "known".
type fakeSources struct{}

func (fakeSources) secret(_ context.Context, _, name string) (map[string][]byte, error) {
	if name != "known" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return map[string][]byte{"b": []byte("secret b"), "a": []byte("$(X)")}, nil
}

func (fakeSources) configMap(_ context.Context, _, name string) (map[string]string, error) {
	if name != "known" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return map[string]string{"mode": "fast"}, nil
}

func TestResolveEnv(t *testing.T) {
	yes := true
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	secretKey := func(name, key string, optional *bool) corev1.EnvVar {
		return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: named(name), Key: key, Optional: optional}}}
	}
	fieldRef := func(path string) corev1.EnvVar {
		return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u-1", Labels: map[string]string{"k": "v"}},
		Spec:       corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "sa"},
	}
	for name, test := range map[string]struct {
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want []string
		fail string
	}{
		"plain":                     {env: []corev1.EnvVar{{Name: "X", Value: "1"}, {Name: "Y"}}, want: []string{"X=1", "Y="}},
		"refers to an earlier one":  {env: []corev1.EnvVar{{Name: "X", Value: "1"}, {Name: "Y", Value: "a$(X)b"}}, want: []string{"X=1", "Y=a1b"}},
		"not to a later one":        {env: []corev1.EnvVar{{Name: "Y", Value: "$(X)"}, {Name: "X", Value: "1"}}, want: []string{"Y=$(X)", "X=1"}},
		"escaped":                   {env: []corev1.EnvVar{{Name: "X", Value: "1"}, {Name: "Y", Value: "$$(X) $$ $ $X"}}, want: []string{"X=1", "Y=$(X) $ $ $X"}},
		"the same name twice":       {env: []corev1.EnvVar{{Name: "X", Value: "1"}, {Name: "X", Value: "2"}}, want: []string{"X=2"}},
		"a field":                   {env: []corev1.EnvVar{fieldRef("metadata.name")}, want: []string{"V=p"}},
		"a label":                   {env: []corev1.EnvVar{fieldRef("metadata.labels['k']")}, want: []string{"V=v"}},
		"the node":                  {env: []corev1.EnvVar{fieldRef("spec.nodeName")}, want: []string{"V=node-1"}},
		"the address":               {env: []corev1.EnvVar{fieldRef("status.podIP")}, want: []string{"V=127.0.0.1"}},
		"a resource":                {env: []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}}}, want: []string{"V=1048576"}},
		"a secret's key, verbatim":  {env: []corev1.EnvVar{{Name: "X", Value: "1"}, secretKey("known", "a", nil)}, want: []string{"X=1", "V=$(X)"}},
		"a secret's missing key":    {env: []corev1.EnvVar{secretKey("known", "c", nil)}, fail: "couldn't find key c in Secret ns/known"},
		"a missing key is optional": {env: []corev1.EnvVar{secretKey("known", "c", &yes)}},
		"a missing secret":          {env: []corev1.EnvVar{secretKey("unknown", "a", nil)}, fail: `secrets "unknown" not found`},
		"it is optional":            {env: []corev1.EnvVar{secretKey("unknown", "a", &yes)}},
		"all of a secret, and env wins": {
			from: []corev1.EnvFromSource{{Prefix: "S_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("known")}}},
			env:  []corev1.EnvVar{{Name: "S_a", Value: "mine"}, {Name: "Y", Value: "$(S_b)"}},
			want: []string{"S_a=mine", "S_b=secret b", "Y=secret b"},
		},
		"all of a missing config map": {
			from: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("unknown")}}},
			fail: `configmaps "unknown" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			container := &corev1.Container{EnvFrom: test.from, Env: test.env}
			container.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}
			got, err := resolveEnv(t.Context(), pod, container, fakeSources{})
			if test.fail != "" {
				if err == nil || !strings.Contains(err.Error(), test.fail) {
					t.Fatalf("error %v; want %q", err, test.fail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var pairs []string
			for _, name := range got.names {
				pairs = append(pairs, name+"="+got.values[name])
			}
			if !slices.Equal(pairs, test.want) {
				t.Errorf("got %q; want %q", pairs, test.want)
			}
		})
	}
}

func TestEnvironAddsFourNamesOnly(t *testing.T) {
	t.Setenv("PATH", "/bin")
	t.Setenv("SECRET_OF_THE_NODE", "x")
	set := &variables{values: map[string]string{}}
	set.set("HOME", "/mine")
	got := set.environ("/root", "host")
	slices.Sort(got)
	want := []string{"HOME=/mine", "HOSTNAME=host", "PATH=/bin", "TMPDIR=/root"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}
