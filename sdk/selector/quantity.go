package selector

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// suffixes are those of Kubernetes quantities.
var suffixes = map[string]*big.Rat{
	"":  big.NewRat(1, 1),
	"n": big.NewRat(1, 1e9), "u": big.NewRat(1, 1e6), "m": big.NewRat(1, 1e3),
	"k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1),
	"T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1),
	"Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1), "Gi": big.NewRat(1<<30, 1),
	"Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
}

// BaseUnits turns a Kubernetes quantity such as "500m", "2Gi" or "1" into the units of [Resource], rounded up:
// millicores for "cpu", otherwise bytes or counts. What does not fit into an int64 becomes the largest one.
func BaseUnits(resource, quantity string) (int64, error) {
	number, suffix := quantity, ""
	if i := strings.IndexFunc(quantity, func(r rune) bool {
		return (r < '0' || r > '9') && r != '.' && r != '+' && r != '-'
	}); i >= 0 {
		number, suffix = quantity[:i], quantity[i:]
	}
	scale, ok := suffixes[suffix]
	if !ok {
		scale, ok = exponent(suffix)
	}
	value, valid := new(big.Rat).SetString(number)
	if !ok || !valid || len(number) > 64 {
		return 0, fmt.Errorf("%s: %q is not a Kubernetes quantity", resource, quantity)
	}
	value.Mul(value, scale)
	if resource == "cpu" {
		value.Mul(value, big.NewRat(1000, 1))
	}
	// Euclidean division of the negated number rounds down, so its negation rounds up.
	up := new(big.Int).Div(new(big.Int).Neg(value.Num()), value.Denom())
	up.Neg(up)
	if !up.IsInt64() {
		if up.Sign() < 0 {
			return math.MinInt64, nil
		}
		return math.MaxInt64, nil
	}
	return up.Int64(), nil
}

// exponent reads the decimal exponents of quantities: "e3", "E-2".
func exponent(suffix string) (*big.Rat, bool) {
	if len(suffix) < 2 || len(suffix) > 4 || (suffix[0] != 'e' && suffix[0] != 'E') {
		return nil, false
	}
	n, err := strconv.Atoi(suffix[1:])
	if err != nil {
		return nil, false
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), power), true
	}
	return new(big.Rat).SetInt(power), true
}
