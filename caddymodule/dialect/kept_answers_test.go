package dialect

import (
	"net/url"
	"testing"
)

func TestInputItems(t *testing.T) {
	items := [][]byte{[]byte(`{"id":"a"}`), []byte(`{"id":"b"}`), []byte(`{"id":"c"}`)}
	const list = `{"object":"list","data":[`
	for query, want := range map[string]string{
		"": list +
			`{"id":"c"},{"id":"b"},{"id":"a"}],"has_more":false,"first_id":"c","last_id":"a"}`,
		"order=asc": list +
			`{"id":"a"},{"id":"b"},{"id":"c"}],"has_more":false,"first_id":"a","last_id":"c"}`,
		"limit=2":                   list + `{"id":"c"},{"id":"b"}],"has_more":true,"first_id":"c","last_id":"b"}`,
		"limit=2&after=b":           list + `{"id":"a"}],"has_more":false,"first_id":"a","last_id":"a"}`,
		"order=asc&after=a&limit=1": list + `{"id":"b"}],"has_more":true,"first_id":"b","last_id":"b"}`,
		"after=a":                   list + `],"has_more":false,"first_id":null,"last_id":null}`,
	} {
		q, _ := url.ParseQuery(query)
		got, err := InputItems(items, q)
		if err != nil || string(got) != want+"\n" {
			t.Errorf("%s: %s, %v", query, got, err)
		}
	}
	for query, param := range map[string]string{
		"limit=0": "limit", "limit=x": "limit", "limit=101": "limit",
		"order=up": "order", "after=z": "after",
	} {
		q, _ := url.ParseQuery(query)
		if _, err := InputItems(items, q); err == nil || err.Param != param || err.HTTPStatus(Responses) != 400 {
			t.Errorf("%s: %v", query, err)
		}
	}
	if string(items[0]) != `{"id":"a"}` {
		t.Error("the kept items were changed")
	}
}
