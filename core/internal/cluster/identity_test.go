package cluster

import "testing"

func TestRecognise(t *testing.T) {
	type answer struct{ same, told bool }
	var (
		yes     = answer{true, true}
		another = answer{false, true}
		open    = answer{false, false}
	)
	for name, test := range map[string]struct {
		known             Observed
		system, namespace string
		want              answer
		report            *answer // where a report, which knows what each UID is of, says something else
	}{
		"the same":                               {Observed{Identity: "K", NamespaceUID: "N"}, "K", "N", yes, nil},
		"the namespace was made anew":            {Observed{Identity: "K", NamespaceUID: "N"}, "K", "N2", yes, nil},
		"the namespace is hidden":                {Observed{Identity: "K", NamespaceUID: "N"}, "K", "", yes, nil},
		"kube-system is hidden":                  {Observed{Identity: "K", NamespaceUID: "N"}, "", "N", yes, nil},
		"kube-system was hidden":                 {Observed{Identity: "N", NamespaceUID: "N"}, "K", "N", yes, nil},
		"both were hidden but the namespace":     {Observed{Identity: "N", NamespaceUID: "N"}, "", "N", yes, nil},
		"of an older version, by kube-system":    {Observed{Identity: "K"}, "K", "N", yes, nil},
		"of an older version, by the namespace":  {Observed{Identity: "N"}, "K", "N", yes, nil},
		"another":                                {Observed{Identity: "K", NamespaceUID: "N"}, "K2", "N2", another, nil},
		"another, its namespace hidden":          {Observed{Identity: "K", NamespaceUID: "N"}, "K2", "", another, nil},
		"kube-system is hidden, other namespace": {Observed{Identity: "K", NamespaceUID: "N"}, "", "N2", another, nil},
		"the namespace alone, another":           {Observed{Identity: "N", NamespaceUID: "N"}, "", "N2", another, nil},
		"by the namespace, now by kube-system":   {Observed{Identity: "N", NamespaceUID: "N"}, "K", "", another, nil},
		"by kube-system, now by the namespace":   {Observed{Identity: "K"}, "", "N", another, &open},
		"everything is hidden":                   {Observed{Identity: "K", NamespaceUID: "N"}, "", "", open, nil},
		"nothing is known":                       {Observed{}, "K", "N", open, nil},
		"nothing is known, nothing is seen":      {Observed{}, "", "", open, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got answer
			if got.same, got.told = Recognise(test.known.Identities(), test.system, test.namespace); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			want := test.want
			if test.report != nil {
				want = *test.report
			}
			r := Report{Identity: test.system, NamespaceUID: test.namespace}
			if r.Identity == "" {
				r.Identity = test.namespace
			}
			if got.same, got.told = r.recognise(test.known); got != want {
				t.Errorf("a report: got %+v, want %+v", got, want)
			}
		})
	}
}

func TestIdentities(t *testing.T) {
	for want, o := range map[string]Observed{
		"":    {},
		"K":   {Identity: "K"},
		"N":   {Identity: "N", NamespaceUID: "N"},
		"K N": {Identity: "K", NamespaceUID: "N"},
	} {
		if got := o.Identities(); got != want {
			t.Errorf("%+v: got %q, want %q", o, got, want)
		}
	}
}
