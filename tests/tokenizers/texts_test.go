package tokenizers

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// words of the languages that the texts are made of, each with the end of its sentences.
var words = map[string]struct{ list, space, end string }{
	"prose": {"the a every old new small large quiet river garden window letter road house morning winter teacher " +
		"doctor farmer children teacher carries opens watches remembers forgets builds repairs follows between under " +
		"across before after slowly carefully together because although while where without enough almost usually " +
		"understanding circumstances nevertheless approximately infrastructure", " ", ". "},
	"russian": {"мы они каждый старый новый небольшой большой тихий река сад окно письмо дорога дом утро зима учитель " +
		"врач крестьянин дети сосед несёт открывает смотрит помнит забывает строит чинит следует между под через перед " +
		"после медленно осторожно вместе потому что хотя пока где без достаточно почти обычно понимание обстоятельства " +
		"приблизительно инфраструктура", " ", ". "},
	"hindi": {"हम वे हर पुराना नया छोटा बड़ा शांत नदी बगीचा खिड़की पत्र सड़क घर सुबह सर्दी शिक्षक डॉक्टर " +
		"किसान बच्चे पड़ोसी ले " +
		"जाता है खोलता देखता याद करता भूल बनाता मरम्मत के बीच नीचे पार पहले बाद धीरे सावधानी से साथ क्योंकि हालांकि " +
		"जबकि जहाँ बिना पर्याप्त लगभग आमतौर पर समझ परिस्थितियाँ", " ", "। "},
	"chinese": {"我们 他们 每个 老师 医生 孩子 邻居 农民 学生 朋友 公司 城市 花园 窗户 道路 房子 早上 冬天 信件 河流 打开 观察 记得 " +
		"忘记 建设 修理 跟随 提供 研究 发展 解决 使用 进行 因为 虽然 但是 所以 如果 已经 可以 需要 应该 非常 慢慢地 小心地 一起 " +
		"之间 以前 以后 大约 通常 几乎 情况 基础设施 人工智能 数据 系统 网络 服务器 模型 问题 方法 时间 结果 信息 技术 管理 的 了 在 " +
		"是 和 有 不 就 也 对", "", "。"},
	"german": {"wir sie jeder alter neuer kleiner großer ruhiger Fluss Garten Fenster Straße Haus Morgen " +
		"Winter Lehrerin " +
		"Arzt Bauer Kinder Nachbarin öffnet trägt sieht erinnert vergisst baut repariert folgt zwischen unter über vor " +
		"nach langsam vorsichtig zusammen weil obwohl während ohne genug Verständnis Umstände Gesundheitsversorgung " +
		"Geschwindigkeitsbegrenzung Rechtsschutzversicherung", " ", ". "},
	"japanese": {"私たちは 彼らは 先生が 医者が 子供たちが 会社の 都市の 庭園の 窓を 道路を 家を 朝に 冬に 手紙を 開けます 観察します 覚えています " +
		"忘れました 建設する 修理する 提供する 研究する 開発する 解決する 使用する 行う なぜなら しかし もし すでに できます 必要です " +
		"とても ゆっくり 注意深く 一緒に データ システム ネットワーク サーバー モデル 問題 方法 時間 結果 情報 技術 管理", "", "。"},
	"korean": {"우리는 그들은 모든 선생님이 의사가 아이들이 이웃이 회사의 도시의 정원의 창문을 도로를 집을 아침에 겨울에 편지를 열었습니다 관찰합니다 " +
		"기억합니다 건설하는 수리하는 제공하는 연구하는 개발하는 해결하는 때문에 하지만 만약 이미 필요합니다 매우 천천히 조심스럽게 함께 " +
		"데이터 시스템 네트워크 서버 모델 문제 방법 시간 결과 정보 기술 관리", " ", ". "},
	"arabic": {"نحن هم كل قديم جديد صغير كبير هادئ النهر الحديقة النافذة الرسالة الطريق البيت الصباح الشتاء " +
		"المعلم الطبيب " +
		"الفلاح الأطفال الجار يفتح يحمل يراقب يتذكر ينسى يبني يصلح يتبع بين تحت قبل بعد ببطء بعناية معا لأن بينما حيث " +
		"بدون تقريبا عادة الظروف المعلومات النظام", " ", ". "},
	"thai": {"เรา พวกเขา ทุก เก่า ใหม่ เล็ก ใหญ่ เงียบ แม่น้ำ สวน หน้าต่าง จดหมาย ถนน บ้าน ตอนเช้า ฤดูหนาว " +
		"ครู หมอ ชาวนา เด็ก " +
		"เพื่อนบ้าน เปิด สังเกต จำ ลืม สร้าง ซ่อม ตาม ระหว่าง ใต้ ก่อน หลัง ช้าๆ ระมัดระวัง ด้วยกัน เพราะ " +
		"แม้ว่า ที่ไหน ไม่มี " +
		"ข้อมูล ระบบ ปัญหา วิธีการ เวลา", "", " "},
	"vietnamese": {"chúng tôi họ mỗi cũ mới nhỏ lớn yên tĩnh dòng sông khu vườn cửa sổ lá thư con đường " +
		"ngôi nhà buổi sáng " +
		"mùa đông giáo viên bác sĩ nông dân trẻ em hàng xóm mở quan sát nhớ quên xây dựng sửa chữa theo giữa dưới trước " +
		"sau chậm rãi cẩn thận cùng nhau bởi vì mặc dù thông tin hệ thống", " ", ". "},
}

// sentences returns text of about n bytes.
func sentences(language string, rnd *rand.Rand, n int) string {
	w := words[language]
	list := strings.Fields(w.list)
	var b strings.Builder
	for b.Len() < n {
		for range 5 + rnd.IntN(12) {
			b.WriteString(list[rnd.IntN(len(list))] + w.space)
		}
		b.WriteString(w.end)
		if rnd.IntN(6) == 0 {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// files returns the texts of files below a folder.
func files(t *testing.T, root string, match func(name string) bool) (texts []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !match(e.Name()) || len(texts) == 300 {
			return err
		}
		text, err := os.ReadFile(path)
		texts = append(texts, string(text))
		return err
	})
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d texts in %s: %v", len(texts), root, err)
	}
	return texts
}

// piece returns n bytes of one of the texts, from the beginning of a line.
func piece(texts []string, rnd *rand.Rand, n int) string {
	text := texts[rnd.IntN(len(texts))]
	text = text[rnd.IntN(1+max(0, len(text)-n)):]
	text = text[strings.IndexByte(text, '\n')+1:]
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}

// A source returns a text of about n bytes.
type source func(rnd *rand.Rand, n int) string

// sources returns what texts of each kind come from.
func sources(t *testing.T) map[string]source {
	code := files(t, "../../caddymodule", func(name string) bool {
		return strings.HasSuffix(name, ".go")
	})
	documents := files(t, "../../docs", func(name string) bool { return strings.HasSuffix(name, ".md") })
	all := map[string]source{
		"code":        func(rnd *rand.Rand, n int) string { return piece(code, rnd, n) },
		"documents":   func(rnd *rand.Rand, n int) string { return piece(documents, rnd, n) },
		"json":        jsonText,
		"indentation": indented,
		"table":       table,
		"log":         log,
		"rules":       rules,
		"mixed": func(rnd *rand.Rand, n int) string { // code with comments in Chinese
			return piece(code, rnd, n*9/10) + "\n// " + sentences("chinese", rnd, n/10)
		},
	}
	for language := range words {
		all[language] = func(rnd *rand.Rand, n int) string { return sentences(language, rnd, n) }
	}
	return all
}

// object returns a JSON value with members that depend on rnd.
func object(rnd *rand.Rand, depth int) any {
	list := strings.Fields(words["prose"].list)
	word := func() string { return list[rnd.IntN(len(list))] }
	switch {
	case depth == 0 && rnd.IntN(3) == 0:
		return rnd.IntN(1e6)
	case depth == 0 && rnd.IntN(3) == 0:
		return fmt.Sprintf("%016x", rnd.Uint64())
	case depth == 0:
		return word() + " " + word()
	}
	o := make(map[string]any)
	for range 2 + rnd.IntN(5) {
		o[word()+"_"+word()] = object(rnd, rnd.IntN(depth))
	}
	return []any{o, rnd.IntN(2) == 0, nil, rnd.Float64()}
}

// jsonText returns JSON, compact or indented.
func jsonText(rnd *rand.Rand, n int) string {
	indent := []string{"", "  ", "\t"}[rnd.IntN(3)]
	var b strings.Builder
	for b.Len() < n {
		text, err := json.MarshalIndent(object(rnd, 3), "", indent)
		if err != nil {
			panic(err) // such values are valid
		}
		b.Write(text)
		b.WriteByte('\n')
	}
	return b.String()
}

// indented returns lines with much white space.
func indented(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for depth := 0; b.Len() < n; depth = max(0, depth+rnd.IntN(3)-1) {
		space := strings.Repeat([]string{"    ", "\t", "  "}[rnd.IntN(3)], depth)
		b.WriteString(space + strings.TrimSpace(sentences("prose", rnd, 1+rnd.IntN(40))) + "\n")
	}
	return b.String()
}

// table returns a table with aligned columns, as programs print and as Markdown has.
func table(rnd *rand.Rand, n int) string {
	list := strings.Fields(words["prose"].list)
	var b strings.Builder
	rule := strings.Repeat("|"+strings.Repeat("-", 10+rnd.IntN(30)), 4) + "|\n"
	b.WriteString(rule)
	for b.Len() < n {
		fmt.Fprintf(&b, "| %-*s | %*d | %-12s | %8.2f |\n", 8+rnd.IntN(2)*20, list[rnd.IntN(len(list))],
			6+rnd.IntN(12), rnd.IntN(1e6), list[rnd.IntN(len(list))], 1000*rnd.Float64())
	}
	return b.String() + rule
}

// log returns lines as servers write them, with times, numbers and identifiers.
func log(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		key := make([]byte, 24)
		for i := range key {
			key[i] = byte(rnd.Uint32())
		}
		fmt.Fprintf(&b, "2026-%02d-%02dT%02d:14:%02d.%06dZ INFO id=%x key=%s took=%dms\n", 1+rnd.IntN(12), 1+rnd.IntN(28),
			rnd.IntN(24), rnd.IntN(60), rnd.IntN(1e6), key[:8], base64.StdEncoding.EncodeToString(key), rnd.IntN(5000))
	}
	return b.String()
}

// rules returns lines that repeat a character, with few words in between.
func rules(rnd *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(strings.Repeat(string("=-*#_ .~+/0xa"[rnd.IntN(13)]), 20+rnd.IntN(80)) + "\n")
		if rnd.IntN(3) == 0 {
			b.WriteString(sentences("prose", rnd, 10) + "\n")
		}
	}
	return b.String()
}
